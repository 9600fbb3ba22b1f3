// How a page is looked at: nothing that axe finds, nothing wider than the window, and a picture of it.

import { checkAccessibility, checkWidth, takePicture } from "./tools.mjs";

export const WIDTHS = [320, 390, 768, 1440];
/** Of which there are pictures. */
export const PICTURED = new Set([390, 1440]);

/** Waits until a page has what it loads. Streams never end, so not until the network is quiet. */
async function settle(page) {
  await page.locator("h1").first().waitFor();
  await page.waitForFunction(() => document.querySelectorAll(".skeleton").length === 0);
  await page.evaluate(async () => {
    const pictures = [...document.images].filter((image) => image.loading !== "lazy" || image.getBoundingClientRect().top < innerHeight);
    await Promise.all(pictures.map((image) => image.decode().catch(() => undefined)));
  });
}

/** Makes the window as wide, and as high as windows of that width are. */
export async function resize(page, width) {
  await page.setViewportSize({ width, height: width < 500 ? 844 : 900 });
}

/** Checks what a page shows now, and keeps a picture of it where it has a name. */
export async function check(page, world, name) {
  const { width } = page.viewportSize();
  await settle(page);
  await checkWidth(page);
  await checkAccessibility(page);
  if (name && PICTURED.has(width)) await takePicture(page, world, `${name}-${width}-${world.scheme}`);
}
