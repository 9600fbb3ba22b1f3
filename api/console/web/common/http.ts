/** Calls of the service and its event streams. Knows nothing of pages, accounts or words. */

/** One thing that is wrong with a request. */
export interface Issue {
  path: (string | number)[];
  code: string;
  message: string;
}

/** What a failure says beyond its status. */
export interface FailureData {
  code?: string;
  declineCode?: string;
  tryAgainIn?: number;
  issues?: Issue[];
}

/** A call that did not succeed. `status` is 0 when no answer came. */
export class ApiFailure extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly data: FailureData = {},
    readonly requestId: string | null = null,
  ) {
    super(message);
  }

  /** The most exact code there is. */
  get reason(): string {
    return this.data.declineCode ?? this.data.code ?? this.code;
  }

  /** Whether the same call may succeed later without a change. */
  get isPassing(): boolean {
    return isPassingStatus(this.status);
  }

  /** The first issue of a field, or nothing. */
  issueOf(field: string): Issue | undefined {
    return this.data.issues?.find((issue) => issue.path[0] === field);
  }
}

/** Whether an answer of this status, or none, says that the same may succeed later. */
function isPassingStatus(status: number): boolean {
  return status === 0 || status === 408 || status === 429 || status >= 500;
}

/** What was thrown, as a failure of a call: what is none is a defect of the page or of its browser. */
export function toApiFailure(error: unknown): ApiFailure {
  return error instanceof ApiFailure ? error : new ApiFailure(0, "UNKNOWN", String(error));
}

/** Fetches an address that the service gave. @throws ApiFailure where no answer comes */
export async function fetchAddress(url: string, init: RequestInit = {}): Promise<Response> {
  try {
    return await fetch(url, { credentials: "omit", ...init });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw connectionLost();
  }
}

/**
 * Sends bytes to a presigned address of the storage; says whether it took them.
 * @throws ApiFailure where no answer comes, or one that says that it cannot take them at the moment
 */
export async function putBytes(url: string, bytes: Blob, contentType: string, signal?: AbortSignal): Promise<boolean> {
  const init: RequestInit = { method: "PUT", body: bytes, headers: { "content-type": contentType } };
  if (signal) init.signal = signal;
  const { ok, status } = await fetchAddress(url, init);
  // It says nothing of these bytes, which are no better or worse than later.
  if (isPassingStatus(status)) throw connectionLost();
  return ok;
}

/** What a client needs to know. */
export interface ClientOptions {
  /** Where operations are, without a slash at the end. */
  base: string;
  /** Headers of every call. */
  headers?: () => Record<string, string>;
  /** Hears of every failure before the caller does. */
  onFailure?: (failure: ApiFailure) => void;
}

/** How a stream is followed. */
export interface StreamOptions<T> {
  signal: AbortSignal;
  /** Hears each message, and the id by which the stream can be resumed after it where it has one. */
  onMessage: (message: T, id?: string) => void;
  /** Hears whether the stream is connected. */
  onConnection?: (connected: boolean) => void;
}

/** What operations take and give, by their paths. */
type Known<O> = { [P in keyof O]: [unknown, unknown] };

/** Operations of the service. */
export interface Client<O extends Known<O>> {
  /** Calls an operation. @throws ApiFailure */
  call<P extends keyof O & string>(path: P, body: O[P][0], signal?: AbortSignal): Promise<O[P][1]>;
  /** Follows an operation until it is done or aborted; connects again when the connection is lost. @throws ApiFailure */
  stream<P extends keyof O & string, T = O[P][1]>(path: P, body: O[P][0], options: StreamOptions<T>): Promise<void>;
}

const LONGEST_WAIT_MS = 30_000;

/** The time to wait before try number `attempt` (from 0), ms: doubled each time, with a random part so that clients spread. */
export function backoff(attempt: number, failure?: ApiFailure): number {
  const asked = failure?.data.tryAgainIn;
  if (asked !== undefined) return asked * 1000 + 100;
  return Math.min(1000 * 2 ** attempt, LONGEST_WAIT_MS) * (0.75 + Math.random() / 2);
}

/** Resolves after a time, or at once when aborted. */
export function wait(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const finish = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", finish);
      resolve();
    };
    const timer = setTimeout(finish, milliseconds);
    signal?.addEventListener("abort", finish);
  });
}

/** Makes a client. */
export function createClient<O extends Known<O>>(options: ClientOptions): Client<O> {
  const request = async (path: string, body: unknown, accept: string, signal?: AbortSignal, lastId?: string) => {
    const headers: Record<string, string> = { "content-type": "application/json", accept, ...options.headers?.() };
    if (lastId) headers["last-event-id"] = lastId;
    let failure: ApiFailure;
    try {
      const init: RequestInit = { method: "POST", headers, body: JSON.stringify(body ?? {}), credentials: "same-origin" };
      if (signal) init.signal = signal;
      const response = await fetch(`${options.base}/${path}`, init);
      if (response.ok) return response;
      failure = await readFailure(response);
    } catch (error) {
      if (signal?.aborted) throw error;
      failure = connectionLost();
    }
    options.onFailure?.(failure);
    throw failure;
  };
  return {
    async call<P extends keyof O & string>(path: P, body: O[P][0], signal?: AbortSignal): Promise<O[P][1]> {
      const response = await request(path, body, "application/json", signal);
      try {
        return (await response.json()) as O[P][1];
      } catch (error) {
        if (signal?.aborted) throw error;
        // The answer broke off.
        const failure = connectionLost();
        options.onFailure?.(failure);
        throw failure;
      }
    },
    async stream<P extends keyof O & string, T = O[P][1]>(path: P, body: O[P][0], stream: StreamOptions<T>): Promise<void> {
      let lastId: string | undefined;
      let attempt = 0;
      while (!stream.signal.aborted) {
        let failure: ApiFailure | undefined;
        try {
          const response = await request(path, body, "text/event-stream", stream.signal, lastId);
          stream.onConnection?.(true);
          for await (const event of readEvents(response)) {
            attempt = 0;
            lastId = event.id ?? lastId;
            if (event.name === "done") return;
            if (event.name === "error") {
              const ended = fromEnvelope(JSON.parse(event.data), 500, null);
              options.onFailure?.(ended);
              throw ended;
            }
            if (event.name === "message") stream.onMessage(JSON.parse(event.data) as T, event.id);
          }
        } catch (error) {
          if (stream.signal.aborted) return;
          if (error instanceof ApiFailure && !error.isPassing) throw error;
          failure = error instanceof ApiFailure ? error : undefined;
        }
        stream.onConnection?.(false);
        await wait(backoff(attempt++, failure), stream.signal);
      }
    },
  };
}

function connectionLost(): ApiFailure {
  return new ApiFailure(0, "CONNECTION_LOST", "no answer");
}

async function readFailure(response: Response): Promise<ApiFailure> {
  const requestId = response.headers.get("x-request-id");
  const body: unknown = await response.json().catch(() => null);
  return fromEnvelope(body, response.status, requestId);
}

function fromEnvelope(body: unknown, status: number, requestId: string | null): ApiFailure {
  const envelope = (body ?? {}) as { code?: string; status?: number; message?: string; data?: FailureData };
  const code = envelope.code ?? "UNKNOWN";
  return new ApiFailure(envelope.status ?? status, code, envelope.message ?? code, envelope.data ?? {}, requestId);
}

interface ServerEvent {
  name: string;
  data: string;
  id: string | undefined;
}

/** Reads server-sent events. An abort or a broken connection ends it with an error. */
async function* readEvents(response: Response): AsyncGenerator<ServerEvent> {
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let unread = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      unread += value;
      const blocks = unread.split(/\r?\n\r?\n/);
      unread = blocks.pop() ?? "";
      for (const block of blocks) {
        const event = parseEvent(block);
        if (event) yield event;
      }
    }
  } finally {
    // Whoever stops reading no longer needs the connection; that cancelling fails on a broken one does not matter.
    reader.cancel().catch(() => undefined);
  }
}

function parseEvent(block: string): ServerEvent | null {
  const event: ServerEvent = { name: "message", data: "", id: undefined };
  for (const line of block.split(/\r?\n/)) {
    const colon = line.indexOf(":");
    if (colon <= 0) continue;
    const value = line.slice(colon + 1).replace(/^ /, "");
    const field = line.slice(0, colon);
    if (field === "event") event.name = value;
    if (field === "id") event.id = value;
    if (field === "data") event.data += event.data ? `\n${value}` : value;
  }
  return event.data || event.name === "done" ? event : null;
}
