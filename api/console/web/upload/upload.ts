/**
 * Sends photos to an album: four at once, straight to the storage, then confirmed in batches. It goes on while other pages
 * are shown; what is already in the album is not sent again, so a second try sends only what is missing.
 */

import { computed, signal } from "@preact/signals";

import type { EntryError } from "../api";
import { callIn, isOfEndedSession, mode, untilSignedIn } from "../calls";
import { ApiFailure, backoff, type FailureData, putBytes, toApiFailure, wait } from "../common/http";
import { session } from "../session";
import type { FoundFiles, NamedFile } from "./files";

/** Photos sent at once. */
const AT_ONCE = 4;
/** Photos per request for addresses: few enough that none expires before its turn. */
const TICKETS = 32;
/** Photos per confirmation. */
const CONFIRMATIONS = 16;
/** How often a photo is tried that the storage refuses. */
const TRIES = 4;
/** Longest time before a photo is tried again: the connection may be back at any time. */
const LONGEST_WAIT_MS = 8000;

/** How an upload is getting on. */
export type UploadState = "idle" | "listing" | "running" | "paused" | "finished";

/** Where all photos are. Their sum is `found`. */
export interface UploadCounts {
  found: number;
  /** Confirmed: the album has them. */
  sent: number;
  /** Were in the album before. */
  skipped: number;
  tooLarge: number;
  failed: number;
  /** Still to come. */
  left: number;
  /** Files that are no photos; not among those found. */
  others: number;
  /** Files and folders that the browser could not read; not among those found. */
  unreadable: number;
}

/** Where a photo is sent. */
interface Ticket {
  photo: NamedFile;
  photoId: string;
  uploadUrl: string;
  /** When the address expires. */
  until: number;
}

interface Uploaded {
  photo: NamedFile;
  photoId: string;
}

const NOTHING: UploadCounts = { found: 0, sent: 0, skipped: 0, tooLarge: 0, failed: 0, left: 0, others: 0, unreadable: 0 };

/** The upload to one album. */
export class Upload {
  readonly state = signal<UploadState>("idle");
  readonly counts = signal<UploadCounts>(NOTHING);
  readonly bytesSent = signal(0);
  readonly bytesFound = signal(0);
  /** Whether the service cannot be reached at the moment. */
  readonly isAway = signal(false);
  /** Why it stopped, if nothing can go on. */
  readonly failure = signal<ApiFailure | undefined>(undefined);
  /** Photos that could not be sent, with the reason. */
  readonly refused = signal<{ name: string; reason: string }[]>([]);
  readonly isActive = computed(() => ["listing", "running", "paused"].includes(this.state.value));

  private waiting: NamedFile[] = [];
  private ready: Ticket[] = [];
  /** The names that this upload sends or has sent: a folder that is dropped twice is sent once. */
  private taken = new Set<string>();
  private unconfirmed: Uploaded[] = [];
  private ticketing: Promise<void> | undefined;
  private workers = 0;
  private abort = new AbortController();
  /** That the credits are used up, which ends it once what is on its way has been confirmed. */
  private unpaid: ApiFailure | undefined;
  /** Who began it: nobody else goes on with it. */
  private accountId: string | undefined;

  /** In the mode of the album: its visitor may look at the other one meanwhile. */
  private readonly call = callIn(mode.value);

  constructor(
    private readonly albumId: string,
    private readonly maxBytes: number,
  ) {}

  /** Begins with photos, or adds them to those that are being sent. Large folders take a while to be found. */
  async add(finding: FoundFiles | Promise<FoundFiles>): Promise<void> {
    if (!this.isActive.value) {
      this.reset();
      this.state.value = "listing";
    }
    // Of this round: one that is given up while its files are listed stays so when another one has begun.
    const { signal } = this.abort;
    try {
      const { photos, others, unreadable } = await finding;
      if (signal.aborted) return;
      this.change({ found: photos.length, left: photos.length, others, unreadable });
      this.bytesFound.value += photos.reduce((sum, photo) => sum + photo.file.size, 0);
      await this.queue(photos, signal);
    } catch (error) {
      this.stop(error, signal);
      return;
    }
    if (signal.aborted) return;
    if (this.state.value === "listing" || this.state.value === "running") await this.run();
  }

  /** Stops after the photos that are on their way. */
  pause(): void {
    if (this.state.value === "running") this.state.value = "paused";
  }

  /** Goes on. */
  async resume(): Promise<void> {
    if (this.state.value === "paused") await this.run();
  }

  /** Gives up what is left. */
  cancel(): void {
    this.abort.abort();
    this.waiting = [];
    this.ready = [];
    this.state.value = "finished";
  }

  private reset(): void {
    this.abort = new AbortController();
    this.counts.value = NOTHING;
    this.bytesSent.value = 0;
    this.bytesFound.value = 0;
    this.failure.value = undefined;
    this.refused.value = [];
    this.waiting = [];
    this.ready = [];
    this.taken.clear();
    this.unconfirmed = [];
    this.unpaid = undefined;
    this.accountId = session.value?.account.id;
  }

  /** Leaves out what the album has and what is too large. */
  private async queue(photos: NamedFile[], signal: AbortSignal): Promise<void> {
    const there = await this.listNames(signal);
    if (signal.aborted) return;
    for (const photo of photos) {
      if (there.has(photo.name) || this.taken.has(photo.name)) this.settle(photo, { skipped: 1 });
      else if (photo.file.size > this.maxBytes) this.refuse(photo, "TOO_LARGE", { tooLarge: 1 });
      else {
        this.taken.add(photo.name);
        this.waiting.push(photo);
      }
      there.add(photo.name);
    }
  }

  /** The names in the album. Tickets whose bytes never came do not count. */
  private async listNames(signal: AbortSignal): Promise<Set<string>> {
    const names = new Set<string>();
    let cursor: string | null | undefined;
    do {
      const input = { albumId: this.albumId, limit: 1000, ...(cursor ? { cursor } : {}) };
      const page = await this.persist((signal) => this.call("photos/photo/list", input, signal), signal);
      for (const photo of page.photos) if (photo.state !== "awaiting_upload") names.add(photo.filename);
      cursor = page.nextCursor;
    } while (cursor);
    return names;
  }

  private async run(): Promise<void> {
    const { signal } = this.abort;
    this.state.value = "running";
    try {
      // Workers of before a short pause may still be there.
      await Promise.all(Array.from({ length: AT_ONCE - this.workers }, () => this.work()));
      await this.confirm(0);
      if (this.unpaid && this.workers === 0) throw this.unpaid;
    } catch (error) {
      this.stop(error, signal);
      return;
    }
    if (signal.aborted) return;
    if (this.state.value === "running" && this.counts.value.left === 0) this.state.value = "finished";
  }

  private stop(error: unknown, signal: AbortSignal): void {
    if (signal.aborted) return;
    this.abort.abort();
    this.failure.value = toApiFailure(error);
    this.state.value = "finished";
  }

  private async work(): Promise<void> {
    this.workers += 1;
    try {
      await this.sendAll();
    } finally {
      this.workers -= 1;
    }
  }

  private async sendAll(): Promise<void> {
    while (this.state.value === "running") {
      const next = this.ready.shift();
      if (next) {
        await this.send(next);
        await this.confirm(CONFIRMATIONS);
      } else if (this.ticketing || (this.waiting.length > 0 && !this.unpaid)) {
        // One request at a time, for all workers.
        this.ticketing ??= this.fetchTickets().finally(() => (this.ticketing = undefined));
        await this.ticketing;
      } else return;
    }
  }

  private async fetchTickets(): Promise<void> {
    const photos = this.waiting.splice(0, TICKETS);
    const entries = photos.map(({ name, contentType }) => ({ filename: name, contentType }));
    const input = { albumId: this.albumId, entries };
    const { results } = await this.persist((signal) => this.call("photos/photo/signed/batch", input, signal));
    for (const [index, photo] of photos.entries()) {
      const { photoId, uploadUrl, expiresAt, error } = results[index] ?? {};
      const end = expiresAt ? Date.parse(expiresAt) : Infinity;
      // One that has expired before it is here tells that the clock of this machine is wrong.
      const until = end > Date.now() ? end : Infinity;
      if (photoId && uploadUrl) this.ready.push({ photo, photoId, uploadUrl, until });
      else this.refuseFor(photo, error);
    }
  }

  /** Has an address made again that has expired, after a pause or on a slow line; the old photo goes. */
  private async signAgain({ photo, photoId, until }: Ticket): Promise<boolean> {
    if (until > Date.now()) return false;
    try {
      await this.persist((signal) => this.call("photos/photo/delete", { albumId: this.albumId, photoId }, signal));
    } catch (error) {
      // After a long pause the service has deleted it itself.
      if (!(error instanceof ApiFailure) || error.status !== 404) throw error;
    }
    this.waiting.unshift(photo);
    return true;
  }

  private async send(ticket: Ticket): Promise<void> {
    const { photo, photoId, uploadUrl } = ticket;
    const { signal } = this.abort;
    let tries = 0;
    for (let attempt = 0; tries < TRIES; attempt += 1) {
      // Before each try: what is refused may have expired while it was sent.
      if (await this.signAgain(ticket)) return;
      try {
        if (await putBytes(uploadUrl, photo.file, photo.contentType, signal)) {
          this.isAway.value = false;
          this.unconfirmed.push({ photo, photoId });
          return;
        }
        tries += 1;
      } catch (error) {
        if (signal.aborted) throw error;
        if (!(await isReadable(photo.file))) return this.refuse(photo, "UNREADABLE", { failed: 1 });
        // Without an answer it is the connection, or a storage that is overloaded: waiting for it does not count as a try.
        this.isAway.value = true;
      }
      await wait(Math.min(backoff(attempt), LONGEST_WAIT_MS), signal);
    }
    this.refuse(photo, "STORAGE_REFUSED", { failed: 1 });
  }

  /** Confirms what was sent, once there are `least` of them. */
  private async confirm(least: number): Promise<void> {
    if (this.unconfirmed.length === 0 || this.unconfirmed.length < least) return;
    const sent = this.unconfirmed.splice(0);
    const input = { albumId: this.albumId, photoIds: sent.map(({ photoId }) => photoId) };
    const { results } = await this.persist((signal) => this.call("photos/photo/success/batch", input, signal));
    for (const [index, { photo }] of sent.entries()) {
      const result = results[index];
      if (result?.success) this.settle(photo, { sent: 1 });
      else this.refuseFor(photo, result?.error);
    }
  }

  /** Calls until there is an answer, or a failure that waiting does not mend. Where the session has ended it waits for a new one. */
  private async persist<T>(request: (signal: AbortSignal) => Promise<T>, signal = this.abort.signal): Promise<T> {
    for (let attempt = 0; ; attempt += 1) {
      try {
        const answer = await request(signal);
        this.isAway.value = false;
        return answer;
      } catch (error) {
        if (isOfEndedSession(error)) {
          await untilSignedIn(signal);
          if (session.value?.account.id !== this.accountId) throw error;
          continue;
        }
        if (!(error instanceof ApiFailure) || !error.isPassing) throw error;
        this.isAway.value = error.status !== 429;
        await wait(backoff(attempt, error), signal);
      }
    }
  }

  private settle(photo: NamedFile, counts: Partial<UploadCounts>): void {
    this.bytesSent.value += photo.file.size;
    this.change({ ...counts, left: -1 });
  }

  /** Refuses a photo as the service did. Without credits it is no failure of the photo, which is left for later. */
  private refuseFor(photo: NamedFile, error: EntryError | undefined): void {
    const { code = "UNKNOWN", status = 0, message = code } = error ?? {};
    const failure = new ApiFailure(status, code, message, (error?.data ?? {}) as FailureData);
    if (failure.reason !== "INSUFFICIENT_CREDITS") return this.refuse(photo, failure.reason, { failed: 1 });
    this.unpaid = failure;
    this.waiting.push(photo);
  }

  private refuse(photo: NamedFile, reason: string, counts: Partial<UploadCounts>): void {
    this.taken.delete(photo.name);
    this.refused.value = [...this.refused.value, { name: photo.name, reason }];
    this.settle(photo, counts);
  }

  private change(by: Partial<UploadCounts>): void {
    const counts = { ...this.counts.value };
    for (const [name, amount] of Object.entries(by)) counts[name as keyof UploadCounts] += amount;
    this.counts.value = counts;
  }
}

/** Whether a file can still be read: it may have been moved, or its card taken out. */
async function isReadable(file: File): Promise<boolean> {
  try {
    await file.slice(0, 1).arrayBuffer();
    return true;
  } catch {
    return false;
  }
}

const uploads = new Map<string, Upload>();

/** The upload to an album in the mode that is shown. */
export function findUpload(albumId: string, maxBytes = Number.MAX_SAFE_INTEGER): Upload {
  const key = `${mode.value} ${albumId}`;
  let upload = uploads.get(key);
  if (!upload) {
    upload = new Upload(albumId, maxBytes);
    uploads.set(key, upload);
  }
  return upload;
}

addEventListener("beforeunload", (event) => {
  // The browser asks whether to leave while photos are on their way.
  if ([...uploads.values()].some((upload) => upload.isActive.value)) event.preventDefault();
});
