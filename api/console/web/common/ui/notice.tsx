/** Short words on what has just happened, shown for some seconds and read aloud. */

import { signal } from "@preact/signals";

const notice = signal("");
let timer: ReturnType<typeof setTimeout> | undefined;

/** Says something. */
export function notify(text: string): void {
  clearTimeout(timer);
  notice.value = text;
  timer = setTimeout(() => (notice.value = ""), 6000);
}

/** Where it is said; once a page. */
export function Notices() {
  return (
    <div class="notices" role="status" aria-live="polite">
      {notice.value && <p class="notice">{notice.value}</p>}
    </div>
  );
}
