/** The photos that were found, and one of them large. */

import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { formatTime, formatTimeOfDay } from "../common/format";
import { useAction } from "../common/load";
import { Button } from "../common/ui/button";
import { VirtualGrid } from "../common/ui/grid";
import { notify } from "../common/ui/notice";
import { Empty, ErrorState, Failed, Loading } from "../common/ui/states";
import type { ApiFailure } from "../common/http";
import { type Gallery, type Photo, type Source, call, loadPhotos, savePhoto } from "./calls";
import { DownloadAll } from "./download-all";
import { t, tCount } from "./text";

/** Two photos beside each other on a phone: runners look at each, and have few. */
const NARROW_ROW = 175;

/** After so long addresses of pictures are near their end, which is after ten minutes, milliseconds. */
const OLD = 9 * 60_000;

interface Found {
  photos: Photo[];
  nextCursor: string | null;
  total: number;
}

/** Why a photo is shown, in words. */
export function reasonWords(photo: Photo): string {
  if (photo.why === null) return photo.takenAt ? formatTime(photo.takenAt) : "";
  const why = photo.why === "bib" ? t("why.bib") : photo.why === "face" ? t("why.face") : t("why.both");
  if (photo.certainty === "sure" || photo.certainty === null) return why;
  return `${why} · ${photo.certainty === "likely" ? t("certainty.likely") : t("certainty.maybe")}`;
}

/** What has been found so far, and how to load more of it. */
function useFound(source: Source) {
  const found = useSignal<Found | undefined>(undefined);
  const failure = useSignal<ApiFailure | undefined>(undefined);
  const isLoading = useSignal(false);
  /** When the oldest addresses came. */
  const since = useRef(Date.now());
  const loadMore = async (cursor: string | null) => {
    if (isLoading.value) return;
    isLoading.value = true;
    if (cursor === null) since.current = Date.now();
    try {
      const page = await loadPhotos(source, cursor);
      const before = cursor === null ? [] : (found.value?.photos ?? []);
      found.value = { ...page, photos: [...before, ...page.photos] };
      failure.value = undefined;
    } catch (error) {
      failure.value = error as ApiFailure;
    }
    isLoading.value = false;
  };
  /** A picture did not come: where its address is old, all that are shown get others. Their order stays. */
  const renew = async () => {
    const shown = found.value?.photos ?? [];
    if (isLoading.value || Date.now() - since.current < OLD) return;
    isLoading.value = true;
    // Also where it fails: each picture that does not come would ask again.
    since.current = Date.now();
    try {
      const fresh = new Map<string, Photo>();
      let cursor: string | null = null;
      do {
        const page: Found = await loadPhotos(source, cursor);
        for (const photo of page.photos) fresh.set(photo.id, photo);
        cursor = page.nextCursor;
      } while (cursor !== null && fresh.size < shown.length);
      const photos = shown.map((photo) => fresh.get(photo.id) ?? photo);
      if (found.value) found.value = { ...found.value, photos };
      failure.value = undefined;
    } catch (error) {
      failure.value = error as ApiFailure;
    }
    isLoading.value = false;
  };
  return { found, failure, loadMore, renew: () => void renew() };
}

/** The photos of a source. */
export function Results({ gallery, source }: { gallery: Gallery; source: Source }) {
  const { found, failure, loadMore, renew } = useFound(source);
  const shown = useSignal<number | null>(null);
  useEffect(() => void loadMore(null), []);
  const hide = (photo: Photo) => {
    if (!found.value) return;
    const photos = found.value.photos.filter((other) => other.id !== photo.id);
    found.value = { ...found.value, photos, total: found.value.total - 1 };
    shown.value = null;
  };

  if (!found.value) {
    if (failure.value) return <ErrorState failure={failure.value} onRetry={() => void loadMore(null)} />;
    return <Loading lines={3} height="8rem" />;
  }
  const { photos, nextCursor, total } = found.value;
  return (
    <section class="results" aria-labelledby="results-title">
      <div class="row row-apart">
        <h2 id="results-title" aria-live="polite">{source.kind === "all" ? t("results.all") : tCount("found", total)}</h2>
        {gallery.downloads !== "none" && <DownloadAll source={source} photos={photos} total={total} />}
      </div>
      {total === 0 && <Empty title={t("none.title")}>{source.kind === "bib" ? <p>{t("none.bib")}</p> : <p>{t("none.selfie")}</p>}</Empty>}
      <VirtualGrid
        items={photos}
        total={total}
        label={t("results.label")}
        narrowRow={NARROW_ROW}
        aspect={(photo) => Math.min(3, Math.max(0.4, photo.width / photo.height))}
        itemKey={(photo) => photo.id}
        render={(photo, index) => <Tile photo={photo} onOpen={() => (shown.value = index)} onMissing={renew} />}
        onEnd={() => nextCursor && void loadMore(nextCursor)}
      />
      <Failed failure={failure.value} />
      {shown.value !== null && photos[shown.value] && (
        <Large
          gallery={gallery}
          photo={photos[shown.value]!}
          hasPrevious={shown.value > 0}
          hasNext={shown.value < photos.length - 1}
          onMove={(step) => (shown.value = Math.min(photos.length - 1, Math.max(0, (shown.value ?? 0) + step)))}
          onClose={() => (shown.value = null)}
          onHide={hide}
          onMissing={renew}
        />
      )}
    </section>
  );
}

function Tile({ photo, onOpen, onMissing }: { photo: Photo; onOpen: () => void; onMissing: () => void }) {
  const wave = photo.wave && t("photo.wave", { wave: photo.wave });
  const time = photo.why && photo.takenAt && formatTimeOfDay(photo.takenAt);
  const words = [reasonWords(photo), wave, time].filter(Boolean).join(" · ");
  return (
    <button type="button" class="tile" onClick={onOpen} aria-label={words || t("photo.open")}>
      <img src={photo.thumbnailUrl} alt="" loading="lazy" decoding="async" onError={onMissing} />
      {photo.why && <span class="tile-reason">{words}</span>}
    </button>
  );
}

interface LargeProps {
  gallery: Gallery;
  photo: Photo;
  hasPrevious: boolean;
  hasNext: boolean;
  onMove: (step: number) => void;
  onClose: () => void;
  onHide: (photo: Photo) => void;
  /** The picture did not come. */
  onMissing: () => void;
}

/** A finger that moves sideways so far goes to another photo, CSS pixels. */
const SWIPE = 48;

/** Hears of swipes: 1 to the next, -1 to the previous. Zooming takes two fingers and is none. */
function useSwipe(onSwipe: (step: number) => void) {
  const start = useRef<Touch | null>(null);
  return {
    onTouchStart: (event: TouchEvent) => {
      start.current = event.touches.length === 1 ? (event.touches[0] ?? null) : null;
    },
    onTouchEnd: (event: TouchEvent) => {
      const [from, to] = [start.current, event.changedTouches[0]];
      start.current = null;
      const isZoomed = (visualViewport?.scale ?? 1) > 1.01;
      if (!from || !to || isZoomed) return;
      const [x, y] = [to.clientX - from.clientX, to.clientY - from.clientY];
      if (Math.abs(x) > SWIPE && Math.abs(x) > 2 * Math.abs(y)) onSwipe(x < 0 ? 1 : -1);
    },
  };
}

/** One photo in a dialog that fills the screen; arrow keys go on. */
function Large({ gallery, photo, hasPrevious, hasNext, onMove, onClose, onHide, onMissing }: LargeProps) {
  const save = useAction(() => savePhoto(photo));
  const report = useAction(async (kind: "not_me" | "report") => {
    await call("gallery/report", { photoId: photo.id, kind });
    notify(t(kind === "not_me" ? "photo.hidden" : "photo.reported"));
    if (kind === "not_me") onHide(photo);
  });
  const open = (element: HTMLDialogElement | null) => {
    if (element && !element.open) element.showModal();
  };
  const key = (event: KeyboardEvent) => {
    if (event.key === "ArrowLeft" && hasPrevious) onMove(-1);
    else if (event.key === "ArrowRight" && hasNext) onMove(1);
    else return;
    event.preventDefault();
  };
  const swipe = useSwipe((step) => (step < 0 ? hasPrevious : hasNext) && onMove(step));
  return (
    <dialog ref={open} class="large" aria-label={t("photo.large")} onClose={onClose} onKeyDown={key} {...swipe}>
      <figure>
        <img src={photo.url} alt={reasonWords(photo)} width={photo.width} height={photo.height} onError={onMissing} />
        <figcaption class="row row-apart">
          <span>
            {reasonWords(photo)}
            {photo.wave && ` · ${t("photo.wave", { wave: photo.wave })}`}
            {photo.takenAt && photo.why && ` · ${formatTime(photo.takenAt)}`}
          </span>
          <span class="row">
            <Button onClick={() => onMove(-1)} disabled={!hasPrevious} aria-label={t("photo.previous")}>‹</Button>
            <Button onClick={() => onMove(1)} disabled={!hasNext} aria-label={t("photo.next")}>›</Button>
            {gallery.downloads !== "none" && (
              <Button kind="main" busy={save.isBusy.value} onClick={() => void save.run()}>{t("photo.download")}</Button>
            )}
            {photo.why && <Button busy={report.isBusy.value} onClick={() => void report.run("not_me")}>{t("photo.notMe")}</Button>}
            <Button busy={report.isBusy.value} onClick={() => void report.run("report")}>{t("photo.report")}</Button>
            <Button onClick={onClose}>{t("photo.close")}</Button>
          </span>
        </figcaption>
        <Failed failure={save.failure.value ?? report.failure.value} />
      </figure>
    </dialog>
  );
}
