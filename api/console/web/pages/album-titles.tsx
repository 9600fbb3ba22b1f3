/** The titles of albums, for pages that know their ids alone. */

import type { AlbumPage } from "../api";
import { call } from "../calls";
import { link } from "../common/router";

/** Titles by the ids of their albums. */
export type Titles = ReadonlyMap<string, string>;

/** What one call gives at most, and how many albums are named: others are shown by their ids. */
const PAGE = 200;
const MOST = 2000;

/** Loads the titles of all albums there are. */
export async function loadTitles(signal?: AbortSignal): Promise<Titles> {
  const titles = new Map<string, string>();
  let cursor: string | null = null;
  do {
    const page: AlbumPage = await call("albums/list", { limit: PAGE, ...(cursor ? { cursor } : {}) }, signal);
    for (const album of page.albums) titles.set(album.id, album.title);
    cursor = page.nextCursor;
  } while (cursor && titles.size < MOST);
  return titles;
}

/** An album by its title. One that is deleted has none, and leads nowhere. */
export function AlbumName({ albumId, titles }: { albumId: string; titles: Titles | undefined }) {
  const title = titles?.get(albumId);
  return title ? <a href={link(`/albums/${albumId}`)}>{title}</a> : <span class="quiet">{albumId}</span>;
}
