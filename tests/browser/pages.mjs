// Every page in both schemes, wide and narrow: nothing that axe finds, nothing wider than the window, and a picture of it.

import { checkAccessibility, checkWidth, openContext } from "./tools.mjs";

const WIDTHS = [320, 390, 768, 1440];
/** Of which there are pictures. */
const PICTURED = new Set([390, 1440]);

function pagesOf(world) {
  const album = `/console/albums/${world.album}`;
  return {
    albums: "/console",
    album,
    photos: `${album}/photos`,
    photo: `${album}/photos/${world.photo}`,
    failures: `${album}/failures`,
    search: `${album}/search?bib=${world.bib}`,
    settings: `${album}/settings`,
    "gallery-settings": `${album}/gallery`,
    costs: `${album}/costs`,
    erasures: `${album}/erasures`,
    keys: "/console/keys",
    webhooks: "/console/webhooks",
    usage: "/console/usage",
    accounts: "/console/accounts",
    account: "/console/account",
    activity: "/console/activity",
    operator: "/console/operator",
    "not-found": "/console/nowhere",
    gallery: new URL(world.gallery).pathname,
  };
}

/** Waits until a page has what it loads. Streams never end, so not until the network is quiet. */
async function settle(page) {
  await page.locator("h1").first().waitFor();
  await page.waitForFunction(() => document.querySelectorAll(".skeleton").length === 0);
  await page.evaluate(async () => {
    const pictures = [...document.images].filter((image) => image.loading !== "lazy" || image.getBoundingClientRect().top < innerHeight);
    await Promise.all(pictures.map((image) => image.decode().catch(() => undefined)));
  });
}

export async function checkPages(world) {
  world.photo = await firstPhoto(world);
  for (const colorScheme of ["light", "dark"]) {
    const { context, close } = await openContext(world, { storageState: world.session, colorScheme, reducedMotion: "reduce" });
    const page = await context.newPage();
    for (const [name, path] of Object.entries(pagesOf(world))) {
      await page.goto(world.base + path);
      for (const width of WIDTHS) {
        await page.setViewportSize({ width, height: width < 500 ? 844 : 900 });
        await settle(page);
        await checkWidth(page);
        await checkAccessibility(page);
        if (PICTURED.has(width)) {
          await page.screenshot({ path: `${world.screens}/${name}-${width}-${colorScheme}.jpg`, type: "jpeg", quality: 60 });
        }
      }
    }
    await close();
  }
  const { context, close } = await openContext(world);
  const page = await context.newPage();
  await page.goto(`${world.base}/console`);
  await page.getByRole("heading", { level: 1 }).waitFor();
  await checkAccessibility(page);
  for (const width of WIDTHS.filter((width) => PICTURED.has(width))) {
    await page.setViewportSize({ width, height: 844 });
    await page.screenshot({ path: `${world.screens}/sign-in-${width}-light.jpg`, type: "jpeg", quality: 60 });
  }
  await close();
}

async function firstPhoto(world) {
  const { context, close } = await openContext(world, { storageState: world.session });
  const page = await context.newPage();
  await page.goto(`${world.base}/console/albums/${world.album}/photos`);
  const link = page.locator(".grid li a").first();
  await link.waitFor();
  const href = await link.getAttribute("href");
  await close();
  return href.split("/").at(-1).split("?")[0];
}
