/** The search of an album as a runner would do it, with the reason of each hit. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { call } from "../calls";
import { formatConfidence, formatTime } from "../common/format";
import { ApiFailure, putBytes } from "../common/http";
import { useAction } from "../common/load";
import { link, navigate, place } from "../common/router";
import { shrinkSelfie } from "../common/selfie";
import { Button } from "../common/ui/button";
import { CheckField, Field, FileField } from "../common/ui/field";
import { Empty, Failed, Loading } from "../common/ui/states";
import { t, tCount, tName } from "../text";
import type { Hit } from "../types";
import { type AlbumProps, AlbumFrame } from "./album-frame";
import { findHits, keepHits, type Search, SearchHits, searchOfPlace } from "./search-hits";
import { MOST_IN_FILE, ZipDownload } from "./zip";

/** Hits per request. */
const PAGE = 60;

/** Uploads a selfie, made smaller; gives the id to search with. @throws ApiFailure */
export async function uploadSelfie(albumId: string, selfie: Blob): Promise<string> {
  const image = await shrinkSelfie(selfie);
  const ticket = await call("photos/search/face/signed", { albumId });
  const isTaken = await putBytes(ticket.uploadUrl, image, image.type || "image/jpeg");
  if (!isTaken) throw new ApiFailure(413, "PAYLOAD_TOO_LARGE", "the selfie was refused");
  return ticket.imageId;
}

/** The page of the search. */
export function SearchPage({ album }: AlbumProps) {
  const albumId = album.id;
  const hits = useSignal<SearchHits | undefined>(undefined);
  const path = `/albums/${albumId}/search`;
  const find = useAction(async (query: string, search: Search) => {
    hits.value = undefined;
    const found = new SearchHits(search);
    await found.loadMore();
    keepHits(albumId, query, found);
    hits.value = found;
    // Its visitor may have left the page meanwhile.
    if (place.value.path === path) navigate(`${path}?${query}`, true);
  });
  const more = useAction(async () => hits.value?.loadMore());
  const page = (cursor: string | undefined) => ({ albumId, limit: PAGE, ...(cursor ? { cursor } : {}) });
  const byBib = (text: string, exact: boolean) => {
    const query = new URLSearchParams({ bib: text, ...(exact ? { exact: "1" } : {}) }).toString();
    return find.run(query, (cursor) => call("photos/search/text/list", { ...page(cursor), text, exact }));
  };
  const byFace = (imageId: string) => {
    const query = new URLSearchParams({ selfie: imageId }).toString();
    return find.run(query, (cursor) => call("photos/search/face/list", { ...page(cursor), imageId }));
  };
  const upload = useAction(async (selfie: File) => byFace(await uploadSelfie(albumId, selfie)));
  useEffect(() => {
    const { query } = place.value;
    // Who comes back from a photo finds the hits as they were.
    hits.value = findHits(albumId, searchOfPlace());
    if (hits.value) return;
    const [bib, imageId] = [query.get("bib"), query.get("selfie")];
    if (bib) void byBib(bib, query.has("exact"));
    else if (imageId) void byFace(imageId);
  }, []);
  const { face, text } = album.config ?? {};
  return (
    <AlbumFrame album={album} section="search">
      <div class="searches">
        <BibSearch isOff={text?.enabled === false} onSearch={(bib, exact) => void byBib(bib, exact)} />
        <SelfieSearch isOff={face?.enabled === false} onSearch={(selfie) => void upload.run(selfie)} />
      </div>
      <Failed failure={find.failure.value ?? upload.failure.value} />
      {(find.isBusy.value || upload.isBusy.value) && <Loading lines={2} height="8rem" />}
      <Results albumId={albumId} hits={hits.value} />
      {hits.value?.hasMore && (
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

function BibSearch({ isOff, onSearch }: { isOff: boolean; onSearch: (bib: string, exact: boolean) => void }) {
  const bib = useSignal(place.value.query.get("bib") ?? "");
  const isExact = useSignal(place.value.query.has("exact"));
  const submit = (event: Event) => {
    event.preventDefault();
    const text = bib.value.trim();
    if (text) onSearch(text, isExact.value);
  };
  return (
    <search class="panel">
      <h2>{t("search.bib")}</h2>
      <form class="stack" onSubmit={submit}>
        <Field
          label={t("search.number")}
          hint={isOff ? t("search.off") : undefined}
          data-search
          // Bibs may have letters, which the keyboard of digits of phones has not.
          inputMode="text"
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

function SelfieSearch({ isOff, onSearch }: { isOff: boolean; onSearch: (selfie: File) => void }) {
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
              if (selfie) onSearch(selfie);
            }}
          />
        </div>
      )}
    </section>
  );
}

function Results({ albumId, hits }: { albumId: string; hits: SearchHits | undefined }) {
  // By their ids: what is downloaded is then what the page shows, and costs no second search.
  const loadAll = async () => {
    while (hits?.hasMore && hits.photos.value.length < MOST_IN_FILE) await hits.loadMore();
    return (hits?.photos.value ?? []).slice(0, MOST_IN_FILE).map((hit) => hit.id);
  };
  const total = hits?.total.value ?? 0;
  return (
    <section class="stack" aria-label={t("search.results")}>
      <div class="row row-apart">
        <p aria-live="polite">{total > 0 && tCount("search.count", total)}</p>
        {total > 0 && <ZipDownload albumId={albumId} action={t("zip.action")} photoIds={loadAll} />}
      </div>
      {hits && total === 0 && <Empty title={t("search.none")} />}
      {hits && <HitList albumId={albumId} hits={hits.photos.value} query={searchOfPlace()} />}
    </section>
  );
}

/** Hits with their reasons. `query` says which search they are of, so that their photos can be walked through. */
export function HitList(props: { albumId: string; hits: Hit[]; small?: boolean; query?: string }) {
  const { albumId, hits, small = false, query = "" } = props;
  return (
    <ul class={small ? "hits hits-small" : "hits"}>
      {hits.map((hit) => (
        <li key={hit.id}>
          <a class="hit" href={link(`/albums/${albumId}/photos/${hit.id}${query && `?${query}`}`)}>
            <div class="hit-picture">
              <img
                src={hit.thumbnailUrl}
                alt={hit.matchedText ?? t("photo.title")}
                loading="lazy"
                style={{ objectPosition: placeInFrame(hit) }}
              />
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

/** The height of a usual portrait that its frame shows, as a part of it. */
const FRAME = 0.5;

/** Which part of a portrait is in its frame: the hit with what is above it, such as the head above a bib. */
function placeInFrame({ boundingBox: { top, height } }: Hit): string {
  const start = Math.min(Math.max(top + height * 1.5 - FRAME, 0), 1 - FRAME);
  return `50% ${(start / (1 - FRAME)) * 100}%`;
}

function describeHit(hit: Hit): string {
  const words = [tName("why", hit.why)];
  if (hit.onStartList === false) words.push(t("search.off_list"));
  if (hit.wave) words.push(hit.wave);
  if (hit.team) words.push(hit.team);
  if (hit.takenAt) words.push(formatTime(hit.takenAt));
  return words.join(" · ");
}
