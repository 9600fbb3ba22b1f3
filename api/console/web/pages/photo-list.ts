/** The photos of an album that a filter lets through, loaded page by page. The list stays when one goes to a photo and back. */

import { signal } from "@preact/signals";

import type { Photo, PhotoPage } from "../api";
import { call, mode } from "../calls";
import { type ApiFailure, toApiFailure } from "../common/http";
import { type LoadedPage, renewPage } from "../common/renew";
import type { PhotoFilter } from "../types";

/** Photos per request. */
const PAGE = 500;
/** Addresses of pictures last an hour; a list older than this, milliseconds, is loaded again. */
export const FRESH_MS = 45 * 60_000;

/** A page that was loaded, with the ids of its photos. */
interface ListedPage extends LoadedPage {
  ids: Set<string>;
}

/** A list of photos. */
export class PhotoList {
  readonly photos = signal<Photo[]>([]);
  readonly total = signal(0);
  readonly isLoading = signal(false);
  /** Whether the first page has come. */
  readonly isThere = signal(false);
  readonly failure = signal<ApiFailure | undefined>(undefined);
  private cursor: string | null = null;
  private readonly pages: ListedPage[] = [];
  private loading: Promise<void> | undefined;
  private readonly loadedAt = Date.now();

  constructor(
    private readonly albumId: string,
    private readonly filter: PhotoFilter,
  ) {}

  /** Whether its pictures can still be shown. */
  get isFresh(): boolean {
    return Date.now() - this.loadedAt < FRESH_MS;
  }

  /** Whether there are photos that have not been loaded. */
  get hasMore(): boolean {
    return !this.isThere.value || this.cursor !== null;
  }

  /** Loads the next page, if there is one; whoever asks meanwhile waits for the same. */
  loadMore(): Promise<void> {
    if (!this.hasMore) return Promise.resolve();
    this.loading ??= this.load().finally(() => (this.loading = undefined));
    return this.loading;
  }

  private async load(): Promise<void> {
    this.isLoading.value = true;
    this.failure.value = undefined;
    try {
      const since = Date.now();
      const page = await this.loadPage(this.cursor);
      this.pages.push({ cursor: this.cursor, ids: new Set(page.photos.map(({ id }) => id)), since });
      this.photos.value = [...this.photos.value, ...page.photos];
      this.total.value = page.total;
      this.cursor = page.nextCursor;
      this.isThere.value = true;
    } catch (error) {
      this.failure.value = toApiFailure(error);
    }
    this.isLoading.value = false;
  }

  private loadPage(cursor: string | null): Promise<PhotoPage> {
    const from = cursor === null ? {} : { cursor };
    return call("photos/photo/list", { albumId: this.albumId, limit: PAGE, ...this.filter, ...from });
  }

  /** A picture did not come: where its address is old, its page comes again. */
  async renew(photoId: string): Promise<void> {
    const page = this.pages.find(({ ids }) => ids.has(photoId));
    try {
      const renewed = await renewPage(page, FRESH_MS, (cursor) => this.loadPage(cursor));
      if (!renewed) return;
      this.photos.value = this.photos.value.map(renewed);
      this.failure.value = undefined;
    } catch (error) {
      this.failure.value = toApiFailure(error);
    }
  }

  /** Takes a photo off the list. */
  remove(photoId: string): void {
    const left = this.photos.value.filter((photo) => photo.id !== photoId);
    this.total.value -= this.photos.value.length - left.length;
    this.photos.value = left;
  }
}

const lists = new Map<string, PhotoList>();

/** Takes a photo that was deleted off all lists. */
export function removeFromLists(photoId: string): void {
  for (const list of lists.values()) list.remove(photoId);
}

/** The list of an album; a new one where `isReloaded` or where that of before is too old. */
export function findPhotoList(albumId: string, filter: PhotoFilter, isReloaded = false): PhotoList {
  const key = `${mode.value} ${albumId} ${JSON.stringify(filter)}`;
  let list = lists.get(key);
  if (!list || isReloaded || !list.isFresh) {
    list = new PhotoList(albumId, filter);
    lists.set(key, list);
    void list.loadMore();
  }
  return list;
}
