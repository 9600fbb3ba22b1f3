/** Who is signed in, and what that person may do. */

import { computed, signal } from "@preact/signals";

import type { Session } from "./api";
import { call, isSignedOut, mode } from "./calls";
import { ApiFailure, toApiFailure } from "./common/http";
import { isLanguage, switchLanguage } from "./common/words";
import type { Mode } from "./types";

/** The session: undefined until it is known, null when nobody is signed in. */
export const session = signal<Session | null | undefined>(undefined);

/** Why it is not known, if the service could not be asked. */
export const sessionFailure = signal<ApiFailure | undefined>(undefined);

const role = computed(() => session.value?.account.role);

/** What the person may do. What is not permitted is not shown; the service decides in any case. */
export const may = {
  /** Upload and delete photos, change albums, see the usage, erasures and webhooks. */
  organize: computed(() => role.value === "owner" || role.value === "organizer"),
  /** Keys, accounts, credits, and the erasure of people. */
  own: computed(() => role.value === "owner"),
  /** See the health of the whole service. */
  operate: computed(() => session.value?.account.operator === true),
};

const SAVED_MODE = "photofinish.mode";

/** Asks who is signed in. */
export async function loadSession(): Promise<void> {
  sessionFailure.value = undefined;
  try {
    await enter(await call("session/get", {}));
  } catch (error) {
    const failure = toApiFailure(error);
    if (failure.status === 401) session.value = null;
    else sessionFailure.value = failure;
  }
}

/** Takes a session that has just begun. */
export async function enter(entered: Session): Promise<void> {
  mode.value = savedMode(entered.modes);
  const { language } = entered.account;
  if (isLanguage(language)) await switchLanguage(language);
  session.value = entered;
  // Last: what waits for it asks who has signed in.
  isSignedOut.value = false;
}

/** Ends the session. */
export async function signOut(): Promise<void> {
  await call("session/delete", {});
  session.value = null;
}

/** Works in another mode from now on. */
export function switchMode(to: Mode): void {
  mode.value = to;
  try {
    localStorage.setItem(SAVED_MODE, to);
  } catch {
    // Storage can be forbidden; the mode then lasts as long as the page.
  }
}

function savedMode(modes: Mode[]): Mode {
  let saved: string | null = null;
  try {
    saved = localStorage.getItem(SAVED_MODE);
  } catch {
    // As above.
  }
  return modes.find((known) => known === saved) ?? modes[0] ?? "test";
}
