/** Calls of the operations of the service, as the account that is signed in and in the mode that is chosen. */

import { signal } from "@preact/signals";

import type { Operations } from "./api";
import { ApiFailure, createClient, type StreamOptions } from "./common/http";
import type { Mode } from "./types";

/** The mode that the console works in. */
export const mode = signal<Mode>("test");

/** Whether the service says that nobody is signed in. */
export const isSignedOut = signal(false);

const onFailure = (failure: ApiFailure) => {
  if (isOfEndedSession(failure)) isSignedOut.value = true;
};

const clientFor = (chosen: () => Mode) =>
  createClient<Operations>({ base: "/console/api", headers: () => ({ "x-photofinish-mode": chosen() }), onFailure });

const client = clientFor(() => mode.value);

/** Calls an operation. */
export const call = client.call;

/** Makes calls in one mode, for what goes on while another one may be shown. */
export function callIn(fixed: Mode): typeof call {
  return clientFor(() => fixed).call;
}

/** Follows an operation that streams. Where the session ends meanwhile it goes on once somebody has signed in again. */
export async function follow<P extends keyof Operations & string, T = Operations[P][1]>(
  path: P,
  body: Operations[P][0],
  options: StreamOptions<T>,
): Promise<void> {
  for (;;) {
    try {
      return await client.stream(path, body, options);
    } catch (error) {
      if (!isSignedOut.value) throw error;
    }
    options.onConnection?.(false);
    await untilSignedIn(options.signal);
    if (options.signal.aborted) return;
  }
}

/** Whether a call failed because the session has ended. */
export function isOfEndedSession(error: unknown): boolean {
  return error instanceof ApiFailure && error.status === 401 && /^SESSION_/.test(error.reason);
}

/** Resolves once somebody is signed in, or when aborted. */
export function untilSignedIn(abort: AbortSignal): Promise<void> {
  if (!isSignedOut.value) return Promise.resolve();
  return new Promise((resolve) => {
    const finish = () => {
      unsubscribe();
      abort.removeEventListener("abort", finish);
      resolve();
    };
    abort.addEventListener("abort", finish);
    // Told of the present value at once, which is that nobody is.
    const unsubscribe = isSignedOut.subscribe((isOut) => !isOut && finish());
    if (abort.aborted) finish();
  });
}
