/** The hits of a search. They stay when one goes to a photo and back, and can be walked through there. */

import { signal } from "@preact/signals";

import { mode } from "../calls";
import { place } from "../common/router";
import type { Hit, Hits } from "../types";
import { FRESH_MS } from "./photo-list";

/** Loads hits from a place in their order. */
export type Search = (cursor: string | undefined) => Promise<Hits>;

/** What the address says of a search. */
const NAMES = ["bib", "exact", "selfie"] as const;

/** The hits that were loaded of a search. */
export class SearchHits {
  readonly photos = signal<Hit[]>([]);
  readonly total = signal(0);
  /** Whether the first page has come. */
  readonly isThere = signal(false);
  private cursor: string | undefined;
  private loading: Promise<void> | undefined;

  constructor(private readonly search: Search) {}

  /** Whether there are hits that have not been loaded. */
  get hasMore(): boolean {
    return !this.isThere.value || this.cursor !== undefined;
  }

  /** Loads the next page, if there is one; whoever asks meanwhile waits for the same. @throws ApiFailure */
  loadMore(): Promise<void> {
    if (!this.hasMore) return Promise.resolve();
    this.loading ??= this.load().finally(() => (this.loading = undefined));
    return this.loading;
  }

  private async load(): Promise<void> {
    const page = await this.search(this.cursor);
    this.photos.value = [...this.photos.value, ...page.photos];
    this.total.value = page.total;
    this.cursor = page.nextCursor ?? undefined;
    this.isThere.value = true;
  }

  /** Takes a photo off the hits. */
  remove(photoId: string): void {
    const left = this.photos.value.filter((hit) => hit.id !== photoId);
    this.total.value -= this.photos.value.length - left.length;
    this.photos.value = left;
  }
}

/** The search that was made last: more are not walked through. */
let last: { key: string; hits: SearchHits; keptAt: number } | undefined;

/** The part of the address that says which search its page or photo belongs to; empty for none. */
export function searchOfPlace(): string {
  const said = new URLSearchParams();
  for (const name of NAMES) {
    const value = place.value.query.get(name);
    if (value) said.set(name, value);
  }
  return said.toString();
}

/** Keeps the hits of a search, by what the address says of it. */
export function keepHits(albumId: string, query: string, hits: SearchHits): void {
  last = { key: `${mode.value} ${albumId} ${query}`, hits, keptAt: Date.now() };
}

/** The hits of a search, if they are kept and their pictures can still be shown. */
export function findHits(albumId: string, query: string): SearchHits | undefined {
  if (last?.key !== `${mode.value} ${albumId} ${query}`) return undefined;
  return Date.now() - last.keptAt < FRESH_MS ? last.hits : undefined;
}
