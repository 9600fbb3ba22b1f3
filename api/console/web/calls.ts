/** Calls of the operations of the service, as the account that is signed in and in the mode that is chosen. */

import { signal } from "@preact/signals";

import type { Operations } from "./api";
import { createClient, type StreamOptions } from "./common/http";
import type { Mode } from "./types";

/** The mode that the console works in. */
export const mode = signal<Mode>("test");

/** Whether the service says that nobody is signed in. */
export const isSignedOut = signal(false);

const client = createClient({
  base: "/console/api",
  headers: () => ({ "x-photofinish-mode": mode.value }),
  onFailure: (failure) => {
    if (failure.status === 401 && /^SESSION_/.test(failure.reason)) isSignedOut.value = true;
  },
});

/** Calls an operation. @throws ApiFailure */
export function call<P extends keyof Operations>(
  path: P,
  body: Operations[P][0],
  signal?: AbortSignal,
): Promise<Operations[P][1]> {
  return client.call(path, body, signal);
}

/** Follows an operation that streams. @throws ApiFailure */
export function follow<P extends keyof Operations, T = Operations[P][1]>(
  path: P,
  body: Operations[P][0],
  options: StreamOptions<T>,
): Promise<void> {
  return client.stream(path, body, options);
}

/** Sends bytes to a presigned address of the storage; says whether it took them. */
export async function putBytes(url: string, bytes: Blob, contentType: string, signal?: AbortSignal): Promise<boolean> {
  const init: RequestInit = { method: "PUT", body: bytes, headers: { "content-type": contentType }, credentials: "omit" };
  if (signal) init.signal = signal;
  const response = await fetch(url, init);
  return response.ok;
}
