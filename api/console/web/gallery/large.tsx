/** One photo large. */

import { useEffect, useRef } from "preact/hooks";

import { useAction } from "../common/load";
import { Button } from "../common/ui/button";
import { notify } from "../common/ui/notice";
import { Failed } from "../common/ui/states";
import { type Gallery, type Photo, call, savePhoto } from "./calls";
import { captionWords } from "./caption";
import { t } from "./text";

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

/** A dialog that fills the screen; arrow keys go on. */
export function Large({ gallery, photo, hasPrevious, hasNext, onMove, onClose, onHide, onMissing }: LargeProps) {
  const save = useAction(() => savePhoto(photo));
  const report = useAction(async (kind: "not_me" | "report") => {
    await call("gallery/report", { photoId: photo.id, kind });
    notify(t(kind === "not_me" ? "photo.hidden" : "photo.reported"));
    if (kind === "not_me") onHide(photo);
  });
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => {
      // As for other dialogs: what has left the page gives no focus back.
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  const key = (event: KeyboardEvent) => {
    if (event.key === "ArrowLeft" && hasPrevious) onMove(-1);
    else if (event.key === "ArrowRight" && hasNext) onMove(1);
    else return;
    event.preventDefault();
  };
  const swipe = useSwipe((step) => (step < 0 ? hasPrevious : hasNext) && onMove(step));
  // Lines break between words, not within one.
  const words = captionWords(photo, true).map((word) => word.replaceAll(" ", "\u00a0")).join(" · ");
  return (
    <dialog ref={dialog} class="large" aria-label={t("photo.large")} onClose={onClose} onKeyDown={key} {...swipe}>
      <figure>
        <figcaption class="large-head">
          <span>{words}</span>
          <Button kind="quiet" onClick={onClose} aria-label={t("photo.close")}>
            <span aria-hidden="true">✕</span>
          </Button>
        </figcaption>
        <img src={photo.url} alt={words} width={photo.width} height={photo.height} onError={onMissing} />
        <div class="large-actions">
          <div class="large-main">
            <Button onClick={() => onMove(-1)} disabled={!hasPrevious} aria-label={t("photo.previous")}>‹</Button>
            {gallery.downloads !== "none" && (
              <Button kind="main" busy={save.isBusy.value} onClick={() => void save.run()}>{t("photo.download")}</Button>
            )}
            <Button onClick={() => onMove(1)} disabled={!hasNext} aria-label={t("photo.next")}>›</Button>
          </div>
          <div class="row">
            {photo.why && <Button kind="quiet" busy={report.isBusy.value} onClick={() => void report.run("not_me")}>{t("photo.notMe")}</Button>}
            <Button kind="quiet" busy={report.isBusy.value} onClick={() => void report.run("report")}>{t("photo.report")}</Button>
          </div>
          <Failed failure={save.failure.value ?? report.failure.value} />
        </div>
      </figure>
    </dialog>
  );
}
