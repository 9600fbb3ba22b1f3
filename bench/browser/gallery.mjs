// A search by bib in a gallery, by a phone on a slow connection: when the first picture is seen, and when all are.

import { openPage } from "./tools.mjs";

const PHONE = { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true };

/** Runs in the page, before its own scripts: notes when pictures of photos are on the screen. */
function watchPictures() {
  const seen = { shown: [], titled: null };
  globalThis.seen = seen;
  const note = async (image) => {
    await image.decode().catch(() => undefined);
    // A timer of the frame that has the picture runs once that is drawn.
    requestAnimationFrame(() => setTimeout(() => seen.shown.push(performance.now())));
  };
  // Loading does not bubble, but is captured.
  document.addEventListener("load", (event) => event.target instanceof HTMLImageElement && event.target.closest(".tile") && note(event.target), true);
  const titled = new MutationObserver(() => {
    if (!document.querySelector("#bib")) return;
    titled.disconnect();
    requestAnimationFrame(() => setTimeout(() => (seen.titled = performance.now())));
  });
  titled.observe(document, { childList: true, subtree: true });
}

async function openSlowly(browser, { bytesPerSecond, latency, slowdown }) {
  const page = await openPage(browser, PHONE);
  await page.addInitScript(watchPictures);
  const session = await page.context().newCDPSession(page);
  await session.send("Network.enable");
  const speed = { downloadThroughput: bytesPerSecond, uploadThroughput: bytesPerSecond, latency };
  await session.send("Network.emulateNetworkConditions", { offline: false, ...speed });
  await session.send("Emulation.setCPUThrottlingRate", { rate: slowdown });
  return page;
}

/** Waits until every picture in the document is on the screen; when the first and the last were, milliseconds of the page. */
async function waitForPictures(page) {
  await page.waitForFunction(() => {
    const images = [...document.querySelectorAll(".tile img")];
    return images.length > 0 && globalThis.seen.shown.length >= images.length;
  });
  return page.evaluate(() => {
    const bytes = performance.getEntriesByType("resource").reduce((sum, entry) => sum + entry.transferSize, 0);
    const { shown, titled } = globalThis.seen;
    return { first: Math.min(...shown), all: Math.max(...shown), pictures: shown.length, titled, bytes };
  });
}

/** From opening a link that has the bib. */
async function followLink(browser, conditions) {
  const page = await openSlowly(browser, conditions);
  await page.goto(`${process.env.GALLERY}?bib=${process.env.BIB}`, { waitUntil: "commit" });
  const seen = await waitForPictures(page);
  await page.context().close();
  return seen;
}

/** From pressing "Find", on a page that is open. */
async function typeBib(browser, conditions) {
  const page = await openSlowly(browser, conditions);
  await page.goto(process.env.GALLERY, { waitUntil: "commit" });
  await page.locator("#bib").fill(process.env.BIB);
  await page.evaluate(() => document.querySelector("form").addEventListener("submit", () => (globalThis.asked = performance.now()), true));
  await page.locator("#bib").press("Enter");
  const seen = await waitForPictures(page);
  const asked = await page.evaluate(() => globalThis.asked);
  await page.context().close();
  return { ...seen, first: seen.first - asked, all: seen.all - asked };
}

export async function measureGallery(browser, { runs, conditions }) {
  const measured = [];
  for (const condition of conditions) {
    for (let run = 0; run < runs; run += 1) {
      measured.push({ condition, kind: "link", ...(await followLink(browser, condition)) });
      measured.push({ condition, kind: "typed", ...(await typeBib(browser, condition)) });
    }
  }
  return measured;
}
