/** How far the albums of a page are, all of them over one stream: browsers open few connections at once. */

import { type ReadonlySignal, type Signal, signal } from "@preact/signals";

import type { Event as ActivityEvent, Operations, Progress } from "../api";
import { call, follow } from "../calls";
import { wait } from "../common/http";

/** How often albums that change are asked again, and how many of them at most each time. */
const ROUND_MS = 3000;
const MOST_ASKED = 6;

/** The progress of albums: asked when they are first shown, and again while they are busy or events tell of their photos. */
export class AlbumsProgress {
  readonly isAway = signal(false);
  private readonly seen = new Map<string, Signal<Progress | undefined>>();
  /** Those to be asked again, the one that waits the longest first. */
  private readonly due = new Set<string>();
  /** Those that nothing was heard of for a while, to be asked once. */
  private readonly stale = new Set<string>();
  private readonly shown = new Set<string>();

  /** The progress of an album; undefined until it is known. */
  of(albumId: string): ReadonlySignal<Progress | undefined> {
    let progress = this.seen.get(albumId);
    if (!progress) {
      progress = signal<Progress | undefined>(undefined, {
        watched: () => this.show(albumId),
        unwatched: () => this.shown.delete(albumId),
      });
      this.seen.set(albumId, progress);
      void this.ask(albumId);
    }
    return progress;
  }

  private show(albumId: string): void {
    this.shown.add(albumId);
    // Without an answer the first call is still on its way.
    if (this.seen.get(albumId)?.peek()) this.stale.add(albumId);
  }

  /** Keeps what is shown up to date until it is aborted. */
  async follow(abort: AbortSignal): Promise<void> {
    // No event tells of what happened before, such as while the page was in the background.
    for (const albumId of this.shown) this.stale.add(albumId);
    const onMessage = ({ data: { albumId } }: ActivityEvent) => {
      if (typeof albumId === "string" && this.seen.has(albumId)) this.due.add(albumId);
    };
    const onConnection = (connected: boolean) => (this.isAway.value = !connected);
    const input: Operations["events/list"][0] = { types: ["photo.ready", "photo.failed", "album.idle"] };
    const options = { signal: abort, onMessage, onConnection };
    // Without events the busy albums are followed all the same.
    follow<"events/list", ActivityEvent>("events/list", input, options).catch(() => undefined);
    while (!abort.aborted) {
      await wait(ROUND_MS, abort);
      if (abort.aborted) return;
      await Promise.all(this.next().map((albumId) => this.ask(albumId)));
    }
  }

  /** Those to ask in a round: the due ones first, but one place is for a stale one, so that busy albums never keep them all. */
  private next(): string[] {
    const due = [...this.due].filter((albumId) => this.shown.has(albumId));
    const stale = [...this.stale].filter((albumId) => this.shown.has(albumId));
    return [...new Set([...due.slice(0, MOST_ASKED - 1), ...stale, ...due])].slice(0, MOST_ASKED);
  }

  private async ask(albumId: string): Promise<void> {
    const progress = this.seen.get(albumId);
    if (!progress) return;
    // Before the call: an event that comes meanwhile may tell of what the answer does not have yet.
    this.due.delete(albumId);
    this.stale.delete(albumId);
    // A card without an answer stays as it is; the page of the album says why there is none.
    progress.value = await call("albums/progress", { albumId }).catch(() => progress.value);
    const { queued = 0, processing = 0 } = progress.value ?? {};
    if (queued + processing > 0) this.due.add(albumId);
  }
}
