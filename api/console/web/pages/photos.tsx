/** The photos of an album as a grid. */

import { useSignal } from "@preact/signals";
import { useMemo, useState } from "preact/hooks";

import "./photos.css";

import type { Photo } from "../api";
import { link, match, place, previousPath } from "../common/router";
import { Button } from "../common/ui/button";
import { VirtualGrid } from "../common/ui/grid";
import { Empty, ErrorState, Failed, Loading } from "../common/ui/states";
import { isTyping } from "../shell";
import { t, tCount, tName } from "../text";
import { type AlbumProps, AlbumFrame } from "./album-frame";
import { PhotoFilters, filterOfPlace } from "./photo-filter";
import { findPhotoList, type PhotoList } from "./photo-list";
import { PhotoSelection, SelectionBar, SelectionMark } from "./photo-selection";

/** The shape of a photo whose size is not known yet. */
const USUAL_ASPECT = 1.5;

/** The page of the photos of an album. */
export function PhotosPage({ album }: AlbumProps) {
  const filter = filterOfPlace();
  const filterKey = JSON.stringify(filter);
  const round = useSignal(0);
  // Coming back from a photo keeps the list and the place in it; else there is what there is now.
  const [cameFrom] = useState(() => match("/albums/:album/photos/:photo", previousPath.value)?.["photo"] ?? null);
  const list = useMemo(
    () => findPhotoList(album.id, filter, round.value > 0 || cameFrom === null),
    [album.id, filterKey, round.value],
  );
  return (
    <AlbumFrame album={album} section="photos" keepsFocus={cameFrom !== null}>
      <PhotoFilters albumId={album.id} filter={filter} />
      <div class="row row-apart">
        <p class="quiet numeric" aria-live="polite">
          {list.isThere.value && tCount("photos.count", list.total.value)}
        </p>
        <Button busy={list.isLoading.value} onClick={() => (round.value += 1)}>
          {t("ui.reload")}
        </Button>
      </div>
      <Photos list={list} albumId={album.id} cameFrom={cameFrom} />
    </AlbumFrame>
  );
}

function Photos({ list, albumId, cameFrom }: { list: PhotoList; albumId: string; cameFrom: string | null }) {
  const selection = useMemo(() => new PhotoSelection(list), [list]);
  if (!list.isThere.value) {
    return list.failure.value ? (
      <ErrorState failure={list.failure.value} onRetry={() => void list.loadMore()} />
    ) : (
      <Loading lines={3} height="11rem" />
    );
  }
  if (list.photos.value.length === 0) return <Empty title={t("photos.none")} />;
  const query = place.value.query.toString();
  const hrefOf = (photo: Photo) => link(`/albums/${albumId}/photos/${photo.id}${query && `?${query}`}`);
  const press = (event: KeyboardEvent) => {
    const index = Number((event.target as Element).closest("[data-index]")?.getAttribute("data-index") ?? -1);
    if (event.key === "x" && !isTyping(event)) selection.toggle(index, false);
    if (event.key === "Escape") selection.clear();
  };
  return (
    // One block, so that the bar stays in view as long as the grid is.
    <div class={selection.isActive ? "choosing" : ""} onKeyDown={press}>
      <VirtualGrid
        items={list.photos.value}
        total={list.total.value}
        hasMore={list.hasMore}
        label={t("album.photos")}
        aspect={(photo) => (photo.width && photo.height ? photo.width / photo.height : USUAL_ASPECT)}
        itemKey={(photo) => photo.id}
        startAt={list.photos.value.findIndex((photo) => photo.id === cameFrom)}
        onEnd={() => void list.loadMore()}
        render={(photo, index) => (
          <Cell photo={photo} index={index} href={hrefOf(photo)} selection={selection} onMissing={() => void list.renew(photo.id)} />
        )}
      />
      <Failed failure={list.failure.value} />
      <SelectionBar selection={selection} albumId={albumId} />
    </div>
  );
}

interface CellProps {
  photo: Photo;
  index: number;
  href: string;
  selection: PhotoSelection;
  /** The picture did not come. */
  onMissing: () => void;
}

function Cell({ photo, index, href, selection, onMissing }: CellProps) {
  const isReady = photo.state === "ready";
  // While photos are being chosen, pressing one chooses it too.
  const press = (event: MouseEvent) => {
    if (!selection.isActive || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    selection.toggle(index, event.shiftKey);
  };
  return (
    <>
      <a
        class={selection.chosen.value.has(photo.id) ? "photo photo-chosen" : "photo"}
        href={href}
        title={photo.filename}
        aria-keyshortcuts="x"
        onClick={press}
      >
        {photo.thumbnailUrl ? (
          <img src={photo.thumbnailUrl} alt={photo.filename} decoding="async" onError={onMissing} />
        ) : (
          <span class="photo-name">{photo.filename}</span>
        )}
        {!isReady && (
          <span class={`photo-state photo-${photo.state}`}>
            {photo.failure ? tName("failure", photo.failure) : t(`state.${photo.state}`)}
          </span>
        )}
      </a>
      <SelectionMark selection={selection} photo={photo} index={index} />
    </>
  );
}
