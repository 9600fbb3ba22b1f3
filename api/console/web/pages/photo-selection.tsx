/** Photos of a list that are chosen, to be fetched as one file. */

import { signal } from "@preact/signals";

import type { Photo } from "../api";
import { formatNumber } from "../common/format";
import { Button } from "../common/ui/button";
import { t, tCount } from "../text";
import type { PhotoList } from "./photo-list";
import { MOST_IN_FILE, ZipDownload } from "./zip";

/** The photos of a list that are chosen. */
export class PhotoSelection {
  readonly chosen = signal<ReadonlySet<string>>(new Set());
  /** The photo that was chosen or let go last, where a range begins. */
  last = 0;

  constructor(readonly list: PhotoList) {}

  /** Whether any photo is chosen. */
  get isActive(): boolean {
    return this.chosen.value.size > 0;
  }

  /** Chooses a photo or lets it go; as a range, all from the one before. */
  toggle(index: number, isRange: boolean): void {
    const photo = this.list.photos.value[index];
    if (!photo) return;
    const chosen = new Set(this.chosen.value);
    const isChosen = chosen.has(photo.id);
    const from = isRange ? this.last : index;
    for (const each of this.list.photos.value.slice(Math.min(from, index), Math.max(from, index) + 1)) {
      if (isChosen) chosen.delete(each.id);
      else chosen.add(each.id);
    }
    this.last = index;
    this.chosen.value = chosen;
  }

  /** Chooses as many of the list as fit in a file, loading them where needed. */
  async chooseAll(): Promise<void> {
    const { list } = this;
    while (list.hasMore && list.photos.value.length < MOST_IN_FILE) {
      await list.loadMore();
      if (list.failure.value) return;
    }
    this.chosen.value = new Set(list.photos.value.slice(0, MOST_IN_FILE).map((photo) => photo.id));
  }

  /** Lets all photos go. */
  clear(): void {
    this.chosen.value = new Set();
  }
}

/** The mark of a photo by which it is chosen. */
export function SelectionMark({ selection, photo, index }: { selection: PhotoSelection; photo: Photo; index: number }) {
  return (
    <input
      type="checkbox"
      class="photo-mark"
      aria-label={t("photos.choose", { name: photo.filename })}
      checked={selection.chosen.value.has(photo.id)}
      onClick={(event) => selection.toggle(index, event.shiftKey)}
    />
  );
}

/** What can be done with the photos that are chosen. Stays in view below the grid. */
export function SelectionBar({ selection, albumId }: { selection: PhotoSelection; albumId: string }) {
  const count = selection.chosen.value.size;
  const isTooMany = count > MOST_IN_FILE;
  const words = count > 0 ? tCount("photos.chosen_count", count) : "";
  const clear = () => {
    selection.clear();
    // The button goes with the bar; the focus goes where the choosing was.
    document.querySelector<HTMLElement>(`[data-index="${selection.last}"] a`)?.focus({ preventScroll: true });
  };
  return (
    <>
      {/* Always there: readers say nothing of what appears together with its words. */}
      <p class="visually-hidden" aria-live="polite">
        {words}
      </p>
      <div class="selection" role="region" aria-label={t("photos.chosen")} hidden={count === 0}>
        <div class="row">
          <p class="numeric">
            <strong>{words}</strong>
            {isTooMany && ` ${t("zip.most", { most: formatNumber(MOST_IN_FILE) })}`}
          </p>
          <Button kind="quiet" onClick={() => void selection.chooseAll()}>
            {t("photos.choose_all")}
          </Button>
          <Button kind="quiet" onClick={clear}>
            {t("photos.choose_none")}
          </Button>
        </div>
        <ZipDownload
          kind="main"
          albumId={albumId}
          action={t("zip.chosen")}
          disabled={isTooMany}
          photoIds={() => Promise.resolve([...selection.chosen.value])}
        />
      </div>
    </>
  );
}
