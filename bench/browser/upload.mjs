// A folder of photos, sent to an album by the console.

import { enter, openPage } from "./tools.mjs";

export async function measureUpload(browser) {
  const page = await openPage(browser, { viewport: { width: 1440, height: 900 } });
  await enter(page);
  await page.goto(`${process.env.BASE_URL}/console/albums/${process.env.ALBUM}`);
  const choose = page.locator("input[type=file][webkitdirectory]");
  await choose.waitFor({ state: "attached" });
  await page.evaluate(() => {
    // From the moment in which the page has the files, as the other program is timed from its start.
    document.addEventListener("change", () => (globalThis.begun ??= performance.now()), true);
    const ended = new MutationObserver(() => {
      if (globalThis.ended === undefined && document.body.innerText.includes("Upload finished")) globalThis.ended = performance.now();
    });
    ended.observe(document.body, { childList: true, subtree: true, characterData: true });
  });
  await choose.setInputFiles(process.env.FOLDER);
  await page.waitForFunction(() => globalThis.ended !== undefined);
  const seconds = await page.evaluate(() => (globalThis.ended - globalThis.begun) / 1000);
  await page.context().close();
  return { seconds };
}
