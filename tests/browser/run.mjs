// The console and a gallery in a real browser, against the running service. What it does, an organizer and a runner do.
//
// Environment: BASE_URL; WELCOME, an invitation of an owner; PHOTOS, a folder; BIB, one that is in it; CAMERA, a video of who
// has it; CHROMIUM, the browser; SERVICE_PID, paused and killed while photos are sent: whoever runs this starts it again;
// ENTER, a link that signs in the owner of DRAWN_ALBUM, whose runners are drawn, DRAWN_BIB among them: all pages are looked at
// with it; SCREENS, a folder for pictures of these; PATIENCE, how long a page may take to show something, milliseconds;
// ONLY, words of the flows to run, those that need no other before them.

import { mkdirSync } from "node:fs";

import { chromium } from "playwright-core";

import { checkPages } from "./pages.mjs";
import { colleaguesFlow } from "./colleagues.mjs";
import { folderFlow } from "./folders.mjs";
import { runnerFlow } from "./gallery.mjs";
import { organizerFlow } from "./organizer.mjs";
import { picturesFlow } from "./pictures.mjs";
import { keyboardFlow } from "./keyboard.mjs";
import { removalFlow } from "./removals.mjs";
import { viewerFlow } from "./roles.mjs";
import { securityCases } from "./security.mjs";
import { selectionFlow } from "./selection.mjs";
import { webhookFlow } from "./webhooks.mjs";

const { BASE_URL, WELCOME, PHOTOS, BIB, CAMERA, SCREENS, CHROMIUM } = process.env;
const { ENTER, DRAWN_ALBUM, DRAWN_BIB, ONLY } = process.env;

const browser = await chromium.launch({
  executablePath: CHROMIUM,
  args: [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--use-fake-ui-for-media-stream",
    "--use-fake-device-for-media-stream",
    `--use-file-for-fake-video-capture=${CAMERA}`,
  ],
});
mkdirSync(SCREENS, { recursive: true });

const world = {
  browser,
  base: BASE_URL,
  welcome: WELCOME,
  photos: PHOTOS,
  bib: BIB,
  screens: SCREENS,
  enter: ENTER,
  drawn: { album: DRAWN_ALBUM, bib: DRAWN_BIB },
  converter: await browser.newPage(),
};
let failed = false;
try {
  for (const [name, flow] of [
    ["an organizer is invited, makes an album, uploads a folder and opens a gallery", organizerFlow],
    ["a runner finds photos on a phone", runnerFlow],
    ["watermark, files of many photos, threshold and filter", picturesFlow],
    ["a folder is dropped, its upload paused and resumed, and chosen again", folderFlow],
    ["a webhook is edited, and sends again what was refused", webhookFlow],
    ["photos are selected and filtered, a watermark goes, a start list is odd", selectionFlow],
    ["colleagues and other tabs change what is shown, and nothing of theirs is undone", colleaguesFlow],
    ["a runner asks to be removed, and the organizer decides", removalFlow],
    ["a viewer is led to no page that is refused", viewerFlow],
    ["all of it works by the keyboard", keyboardFlow],
    ["what must be refused is refused", securityCases],
    ["every page is accessible, in both schemes, wide and narrow", checkPages],
  ]) {
    if (ONLY && !name.includes(ONLY)) continue;
    const started = Date.now();
    await flow(world);
    console.log(`ok - ${name} (${((Date.now() - started) / 1000).toFixed(1)} s)`);
  }
} catch (error) {
  failed = true;
  console.error(error);
  // What the open pages show then, beside the other pictures.
  const pages = browser.contexts().flatMap((context) => context.pages());
  await Promise.all(pages.map((page, at) => page.screenshot({ path: `${SCREENS}/failure-${at}.png` }).catch(() => undefined)));
}
await browser.close();
process.exit(failed ? 1 : 0);
