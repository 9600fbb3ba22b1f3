/** Files that the service makes while it sends them. */

import { ApiFailure } from "./http";

/** Begins to fetch such a file; the page stays. @throws ApiFailure where the service cannot send it now */
export async function fetchFile(url: string): Promise<void> {
  // Asked first, because a refusal would be shown in the place of the page. Other hosts do not tell.
  if (new URL(url).origin === location.origin) {
    const answer = await fetch(url, { method: "HEAD" }).catch(() => undefined);
    if (!answer) throw new ApiFailure(0, "CONNECTION_LOST", "no answer");
    if (!answer.ok) throw refusal(answer.status);
  }
  const anchor = document.createElement("a");
  anchor.href = url;
  // The service names the file.
  anchor.download = "";
  anchor.click();
}

function refusal(status: number): ApiFailure {
  const isBusy = status === 503 || status === 429;
  const code = isBusy ? "TOO_MANY_DOWNLOADS" : status === 404 ? "NOT_FOUND" : "UNKNOWN";
  return new ApiFailure(status, code, code);
}
