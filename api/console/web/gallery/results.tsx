/** The photos that were found. */

import { useComputed, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { type ApiFailure, toApiFailure } from "../common/http";
import { type LoadedPage, renewPage } from "../common/renew";
import { VirtualGrid } from "../common/ui/grid";
import { Empty, ErrorState, Failed, Loading } from "../common/ui/states";
import { type Gallery, type Photo, type Source, loadPhotos } from "./calls";
import { captionWords } from "./caption";
import { DownloadAll } from "./download-all";
import { Large } from "./large";
import { LeaveByBib } from "./leave";
import { t, tCount } from "./text";

/** Two photos beside each other on a phone: runners look at each, and have few. */
const NARROW_ROW = 175;

/** So many photos before the last one that is there, more of them are loaded. */
const AHEAD = 5;

/** After so long addresses of pictures are near their end, which is after ten minutes, milliseconds. */
const OLD = 9 * 60_000;

/** A page of what was found. */
interface Page extends LoadedPage {
  photos: Photo[];
}

interface Found {
  pages: Page[];
  nextCursor: string | null;
  total: number;
}

/** What has been found so far, and how to load more of it. */
function useFound(source: Source) {
  const found = useSignal<Found | undefined>(undefined);
  const failure = useSignal<ApiFailure | undefined>(undefined);
  const isLoading = useSignal(false);
  const photos = useComputed(() => found.value?.pages.flatMap((page) => page.photos) ?? []);
  const change = (apply: (page: Page) => Photo[], taken = 0) => {
    if (!found.value) return;
    const pages = found.value.pages.map((page) => ({ ...page, photos: apply(page) }));
    found.value = { ...found.value, pages, total: found.value.total - taken };
  };
  const loadMore = async (next: string | null) => {
    if (isLoading.value) return;
    isLoading.value = true;
    const since = Date.now();
    try {
      const { photos, cursor, nextCursor, total } = await loadPhotos(source, next);
      const before = next === null ? [] : (found.value?.pages ?? []);
      found.value = { pages: [...before, { cursor, photos, since }], nextCursor, total };
      failure.value = undefined;
    } catch (error) {
      failure.value = toApiFailure(error);
    }
    isLoading.value = false;
  };
  /** A picture did not come: where its address is old, its page comes again. */
  const renew = async (missing: Photo) => {
    const page = found.value?.pages.find(({ photos }) => photos.some((photo) => photo.id === missing.id));
    try {
      const renewed = await renewPage(page, OLD, (cursor) => loadPhotos(source, cursor));
      if (!renewed) return;
      change(({ photos }) => photos.map(renewed));
      failure.value = undefined;
    } catch (error) {
      failure.value = toApiFailure(error);
    }
  };
  const hide = (hidden: Photo) => change(({ photos }) => photos.filter((photo) => photo.id !== hidden.id), 1);
  return { found, photos, failure, loadMore, renew: (photo: Photo) => void renew(photo), hide };
}

/** Failures that the same selfie has again. */
const UNUSABLE = ["NO_FACE", "UNREADABLE_IMAGE", "SELFIE_TOO_LARGE"];

interface ResultsProps {
  gallery: Gallery;
  source: Source;
  onOtherSelfie: () => void;
}

/** The photos of a source. */
export function Results({ gallery, source, onOtherSelfie }: ResultsProps) {
  const { found, photos: all, failure, loadMore, renew, hide } = useFound(source);
  const shown = useSignal<number | null>(null);
  useEffect(() => void loadMore(null), []);
  const hideShown = (photo: Photo) => {
    hide(photo);
    shown.value = null;
  };

  if (!found.value) {
    if (failure.value && UNUSABLE.includes(failure.value.reason)) {
      return <ErrorState failure={failure.value} action={t("selfie.other")} onRetry={onOtherSelfie} />;
    }
    if (failure.value) return <ErrorState failure={failure.value} onRetry={() => void loadMore(null)} />;
    return <Loading lines={3} height="8rem" />;
  }
  const { pages, nextCursor, total } = found.value;
  const photos = all.value;
  const large = shown.value === null ? undefined : photos[shown.value];
  const move = (step: number) => {
    const next = Math.max(0, (shown.value ?? 0) + step);
    // The list behind the large photo does not scroll, and loads nothing by itself.
    if (next >= photos.length - AHEAD && nextCursor) void loadMore(nextCursor);
    shown.value = Math.min(photos.length - 1, next);
  };
  return (
    <section class="results" aria-labelledby="results-title">
      <div class="row row-apart">
        <h2 id="results-title" aria-live="polite">{source.kind === "all" ? t("results.all") : tCount("found", total)}</h2>
        {gallery.downloads !== "none" && <DownloadAll source={source} photos={photos} total={total} />}
      </div>
      {total === 0 && <NothingFound gallery={gallery} source={source} />}
      <VirtualGrid
        items={photos}
        total={total}
        hasMore={nextCursor !== null}
        label={t("results.label")}
        narrowRow={NARROW_ROW}
        aspect={(photo) => Math.min(3, Math.max(0.4, photo.width / photo.height))}
        itemKey={(photo) => photo.id}
        render={(photo, index) => <Tile photo={photo} onOpen={() => (shown.value = index)} onMissing={() => renew(photo)} />}
        onEnd={() => nextCursor && void loadMore(nextCursor)}
      />
      <Failed failure={failure.value} />
      {source.kind === "bib" && total > 0 && <LeaveByBib text={source.text} cursor={pages[0]?.cursor ?? null} />}
      {shown.value !== null && large && (
        <Large
          gallery={gallery}
          photo={large}
          hasPrevious={shown.value > 0}
          hasNext={shown.value < photos.length - 1 || nextCursor !== null}
          onMove={move}
          onClose={() => (shown.value = null)}
          onHide={hideShown}
          onMissing={() => renew(large)}
        />
      )}
    </section>
  );
}

/** Says why nothing was found, as far as it is known, and what may help. */
function NothingFound({ gallery, source }: { gallery: Gallery; source: Source }) {
  if (gallery.photos === 0 || source.kind === "all") return <Empty title={t("none.yet_title")}><p>{t("none.yet")}</p></Empty>;
  return <Empty title={t("none.title")}><p>{t(source.kind === "bib" ? "none.bib" : "none.selfie")}</p></Empty>;
}

function Tile({ photo, onOpen, onMissing }: { photo: Photo; onOpen: () => void; onMissing: () => void }) {
  const words = captionWords(photo);
  return (
    <button type="button" class="tile" onClick={onOpen} aria-label={words.join(" · ") || t("photo.open")}>
      <img src={photo.thumbnailUrl} alt="" loading="lazy" decoding="async" onError={onMissing} />
      {photo.why && <span class="tile-words">{words.map((word, at) => <span key={word}>{at > 0 && "\u00a0· "}{word}</span>)}</span>}
    </button>
  );
}
