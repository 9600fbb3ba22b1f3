/** The search of an album as a runner would do it, with the reason of each hit. */

import { type Signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { call, putBytes } from "../calls";
import { formatConfidence, formatTime } from "../common/format";
import { ApiFailure } from "../common/http";
import { useAction } from "../common/load";
import { link, place, setQuery } from "../common/router";
import { Button } from "../common/ui/button";
import { CheckField, Field, FileField } from "../common/ui/field";
import { Empty, Failed, Loading } from "../common/ui/states";
import { t, tCount, tName } from "../text";
import type { Hit, Hits } from "../types";
import { type AlbumProps, AlbumFrame } from "./album-frame";
import { MOST_IN_FILE, ZipDownload } from "./zip";

/** Hits per request. */
const PAGE = 60;

/** Loads hits from a place in their order. */
type Search = (cursor: string | undefined) => Promise<Hits>;

/** Uploads a selfie; gives the id to search with. @throws ApiFailure */
export async function uploadSelfie(albumId: string, selfie: Blob): Promise<string> {
  const ticket = await call("photos/search/face/signed", { albumId });
  const isTaken = await putBytes(ticket.uploadUrl, selfie, selfie.type || "image/jpeg");
  if (!isTaken) throw new ApiFailure(413, "PAYLOAD_TOO_LARGE", "the selfie was refused");
  return ticket.imageId;
}

/** The page of the search. */
export function SearchPage({ album }: AlbumProps) {
  const albumId = album.id;
  const hits = useSignal<Hits | undefined>(undefined);
  const search = useSignal<Search | undefined>(undefined);
  const find = useAction(async (begin: () => Promise<Search>) => {
    hits.value = undefined;
    const next = await begin();
    search.value = next;
    hits.value = await next(undefined);
  });
  const loadMore = async () => {
    const before = hits.value;
    if (!before?.nextCursor || !search.value) return;
    const page = await search.value(before.nextCursor);
    // Another search, or another call, may have been faster.
    if (hits.value === before) hits.value = { ...page, photos: [...before.photos, ...page.photos] };
  };
  const more = useAction(loadMore);
  // By their ids: what is downloaded is then what the page shows, and costs no second search.
  const loadAll = async () => {
    while (hits.value?.nextCursor && hits.value.photos.length < MOST_IN_FILE) await loadMore();
    return (hits.value?.photos ?? []).slice(0, MOST_IN_FILE).map((hit) => hit.id);
  };
  const byBib = (text: string, exact: boolean) =>
    find.run(async () => (cursor) =>
      call("photos/search/text/list", { albumId, text, exact, limit: PAGE, ...(cursor ? { cursor } : {}) }),
    );
  const byFace = (selfie: File) =>
    find.run(async () => {
      const imageId = await uploadSelfie(albumId, selfie);
      return (cursor) => call("photos/search/face/list", { albumId, imageId, limit: PAGE, ...(cursor ? { cursor } : {}) });
    });
  const { face, text } = album.config ?? {};
  return (
    <AlbumFrame album={album} section="search">
      <div class="searches">
        <BibSearch isOff={text?.enabled === false} onSearch={byBib} />
        <SelfieSearch isOff={face?.enabled === false} onSearch={byFace} />
      </div>
      <Failed failure={find.failure.value} />
      {find.isBusy.value && <Loading lines={2} height="8rem" />}
      <Results albumId={albumId} hits={hits} loadAll={loadAll} />
      {hits.value?.nextCursor && (
        <div class="row">
          <Button busy={more.isBusy.value} onClick={() => void more.run()}>
            {t("ui.more")}
          </Button>
          <Failed failure={more.failure.value} />
        </div>
      )}
    </AlbumFrame>
  );
}

function BibSearch({ isOff, onSearch }: { isOff: boolean; onSearch: (bib: string, exact: boolean) => Promise<void> }) {
  const bib = useSignal(place.value.query.get("bib") ?? "");
  const isExact = useSignal(false);
  const search = () => {
    const text = bib.value.trim();
    if (!text) return;
    setQuery("bib", text);
    void onSearch(text, isExact.value);
  };
  useEffect(search, []);
  return (
    <search class="panel">
      <form
        class="stack"
        onSubmit={(event) => {
          event.preventDefault();
          search();
        }}
      >
        <Field
          label={t("search.bib")}
          hint={isOff ? t("search.off") : undefined}
          data-search
          inputMode="numeric"
          autoComplete="off"
          maxLength={100}
          value={bib.value}
          onInput={(value) => (bib.value = value)}
        />
        <CheckField label={t("search.exact")} checked={isExact.value} onChange={(exact) => (isExact.value = exact)} />
        <div class="row">
          <Button kind="main" type="submit" disabled={isOff}>
            {t("search.action")}
          </Button>
        </div>
      </form>
    </search>
  );
}

function SelfieSearch({ isOff, onSearch }: { isOff: boolean; onSearch: (selfie: File) => Promise<void> }) {
  return (
    <section class="panel" aria-labelledby="selfie-title">
      <h2 id="selfie-title">{t("search.selfie")}</h2>
      <p class="quiet">{t(isOff ? "search.off" : "search.selfie_hint")}</p>
      {!isOff && (
        <div class="row">
          <FileField
            label={t("search.choose")}
            accept="image/jpeg,image/png,image/webp"
            onFiles={([selfie]) => {
              if (selfie) void onSearch(selfie);
            }}
          />
        </div>
      )}
    </section>
  );
}

type ResultsProps = { albumId: string; hits: Signal<Hits | undefined>; loadAll: () => Promise<string[]> };

function Results({ albumId, hits, loadAll }: ResultsProps) {
  const found = hits.value;
  return (
    <section class="stack" aria-label={t("search.results")}>
      <div class="row row-apart">
        <p aria-live="polite">{found && found.total > 0 && tCount("search.count", found.total)}</p>
        {found && found.total > 0 && <ZipDownload albumId={albumId} action={t("zip.action")} photoIds={loadAll} />}
      </div>
      {found?.total === 0 && <Empty title={t("search.none")} />}
      {found && <HitList albumId={albumId} hits={found.photos} />}
    </section>
  );
}

/** Hits with their reasons. */
export function HitList({ albumId, hits, small = false }: { albumId: string; hits: Hit[]; small?: boolean }) {
  return (
    <ul class={small ? "hits hits-small" : "hits"}>
      {hits.map((hit) => (
        <li key={hit.id}>
          <a class="hit" href={link(`/albums/${albumId}/photos/${hit.id}`)}>
            <div class="hit-picture">
              <img src={hit.thumbnailUrl} alt={hit.matchedText ?? t("photo.title")} loading="lazy" />
            </div>
            <strong class="hit-words numeric">
              {hit.matchedText && `${hit.matchedText} · `}
              {formatConfidence(hit.confidence)}
            </strong>
            <span class="hit-words quiet">{describeHit(hit)}</span>
          </a>
        </li>
      ))}
    </ul>
  );
}

function describeHit(hit: Hit): string {
  const words = [tName("why", hit.why)];
  if (hit.onStartList === false) words.push(t("search.off_list"));
  if (hit.wave) words.push(hit.wave);
  if (hit.team) words.push(hit.team);
  if (hit.takenAt) words.push(formatTime(hit.takenAt));
  return words.join(" · ");
}
