/** From a photo to the one before and the one after, in the list that one came from. */

import { type ReadonlySignal, type Signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { navigate, place } from "../common/router";
import { isTyping } from "../shell";
import { filterOfPlace } from "./photo-filter";
import { findPhotoList } from "./photo-list";
import { findHits, searchOfPlace } from "./search-hits";

/** The paths of the photos before and after; null where there is none, or none is known. */
export interface Neighbours {
  previous: string | null;
  next: string | null;
}

/** What can be walked through: photos of an album, or hits of a search. */
interface Walk {
  photos: ReadonlySignal<{ id: string }[]>;
  isThere: ReadonlySignal<boolean>;
  loadMore: () => Promise<void>;
}

/** The list that the address names. Hits that are not kept are not searched again: a search may cost something. */
function findWalk(albumId: string): Walk | undefined {
  const search = searchOfPlace();
  return search ? findHits(albumId, search) : findPhotoList(albumId, filterOfPlace());
}

/** The path of a photo, or of the page, that belongs to the same list as the address. */
export function pathBeside(albumId: string, page: string): string {
  const parts = new URLSearchParams(place.value.query);
  // Of this photo alone.
  parts.delete("face");
  const query = parts.toString();
  return `/albums/${albumId}/${page}${query && `?${query}`}`;
}

/** The photos before and after. */
export function useNeighbours(albumId: string, photoId: string): Signal<Neighbours> {
  const neighbours = useSignal<Neighbours>({ previous: null, next: null });
  useEffect(() => {
    let isGone = false;
    const find = async (walk: Walk) => {
      // A photo that was opened by its address is looked for in the first page alone: it may be one of very many.
      if (!walk.isThere.value) await walk.loadMore();
      const at = walk.photos.value.findIndex((photo) => photo.id === photoId);
      if (at < 0) return;
      if (at === walk.photos.value.length - 1) await walk.loadMore();
      const { [at - 1]: before, [at + 1]: after } = walk.photos.value;
      const path = (photo: { id: string } | undefined) => (photo ? pathBeside(albumId, `photos/${photo.id}`) : null);
      if (!isGone) neighbours.value = { previous: path(before), next: path(after) };
    };
    const walk = findWalk(albumId);
    // Without the next page the last photo has none after it.
    if (walk) find(walk).catch(() => undefined);
    return () => {
      isGone = true;
    };
  }, [albumId, photoId, place.value.query.toString()]);
  return neighbours;
}

/** The keys of a photo: to its neighbours, and for its boxes. */
export function usePhotoKeys(neighbours: Signal<Neighbours>, toggleBoxes: () => void): void {
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (isTyping(event)) return;
      const { previous, next } = neighbours.value;
      if (event.key === "j" && next) navigate(next);
      if (event.key === "k" && previous) navigate(previous);
      if (event.key === "b") toggleBoxes();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}
