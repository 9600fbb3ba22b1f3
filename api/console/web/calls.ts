/** Calls of the operations of the service, as the account that is signed in and in the mode that is chosen. */

import { signal } from "@preact/signals";

import type { Operations } from "./api";
import { createClient } from "./common/http";
import type { Mode } from "./types";

/** The mode that the console works in. */
export const mode = signal<Mode>("test");

/** Whether the service says that nobody is signed in. */
export const isSignedOut = signal(false);

/** Calls an operation, or follows one that streams. */
export const { call, stream: follow } = createClient<Operations>({
  base: "/console/api",
  headers: () => ({ "x-photofinish-mode": mode.value }),
  onFailure: (failure) => {
    if (failure.status === 401 && /^SESSION_/.test(failure.reason)) isSignedOut.value = true;
  },
});

/** Sends bytes to a presigned address of the storage; says whether it took them. */
export async function putBytes(url: string, bytes: Blob, contentType: string, signal?: AbortSignal): Promise<boolean> {
  const init: RequestInit = { method: "PUT", body: bytes, headers: { "content-type": contentType }, credentials: "omit" };
  if (signal) init.signal = signal;
  const response = await fetch(url, init);
  return response.ok;
}
