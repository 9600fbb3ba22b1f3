// Every page in both schemes, wide and narrow: nothing that axe finds, nothing wider than the window, and a picture of it. The
// runners on them are drawn.

import assert from "node:assert";

import { callFrom, checkAccessibility, checkWidth, openContext, takePicture } from "./tools.mjs";

const WIDTHS = [320, 390, 768, 1440];
/** Of which there are pictures. */
const PICTURED = new Set([390, 1440]);

function pagesOf({ album, bib, photo, gallery, webhook }) {
  const path = `/console/albums/${album}`;
  return {
    albums: "/console",
    album: path,
    photos: `${path}/photos`,
    photo: `${path}/photos/${photo}`,
    failures: `${path}/failures`,
    search: `${path}/search?bib=${bib}`,
    settings: `${path}/settings`,
    "gallery-settings": `${path}/gallery`,
    costs: `${path}/costs`,
    erasures: `${path}/erasures`,
    "all-erasures": "/console/erasures",
    keys: "/console/keys",
    webhooks: "/console/webhooks",
    webhook: `/console/webhooks/${webhook}`,
    usage: "/console/usage",
    accounts: "/console/accounts",
    account: "/console/account",
    activity: "/console/activity",
    operator: "/console/operator",
    "not-found": "/console/nowhere",
    gallery,
    "gallery-results": `${gallery}?bib=${bib}`,
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

const heightOf = (width) => (width < 500 ? 844 : 900);

/** Checks what a page shows now, and keeps a picture of it. */
async function check(page, world, name) {
  const { width } = page.viewportSize();
  await settle(page);
  await checkWidth(page);
  await checkAccessibility(page);
  if (PICTURED.has(width)) await takePicture(page, world, `${name}-${width}-${world.scheme}`);
}

/** A photo large, and the consent: what comes after a click. */
async function checkDialogs(page, world) {
  for (const width of PICTURED) {
    await page.setViewportSize({ width, height: heightOf(width) });
    await page.goto(`${world.base}${world.drawn.gallery}?bib=${world.drawn.bib}`);
    await page.locator(".tile").first().click();
    await page.getByRole("dialog").locator("img").waitFor();
    await check(page, world, "gallery-photo");
    await page.goto(world.base + world.drawn.gallery);
    await page.getByRole("button", { name: "Search with a selfie" }).click();
    await page.getByRole("checkbox").waitFor();
    await check(page, world, "gallery-consent");
  }
}

export async function checkPages(world) {
  const session = await prepare(world);
  for (const colorScheme of ["light", "dark"]) {
    const { context, close } = await openContext(world, { storageState: session, colorScheme, reducedMotion: "reduce" });
    const page = await context.newPage();
    world.scheme = colorScheme;
    for (const [name, path] of Object.entries(pagesOf(world.drawn))) {
      await page.goto(world.base + path);
      for (const width of WIDTHS) {
        await page.setViewportSize({ width, height: heightOf(width) });
        await check(page, world, name);
      }
    }
    await checkDialogs(page, world);
    await close();
    await checkSignIn(world, colorScheme);
  }
}

/** What is shown to those who are not signed in. */
async function checkSignIn(world, colorScheme) {
  const { context, close } = await openContext(world, { colorScheme });
  const page = await context.newPage();
  const pages = { "sign-in": "/console", welcome: world.drawn.welcome, "gallery-closed": "/g/0000000000000000000000" };
  for (const [name, path] of Object.entries(pages)) {
    await page.goto(world.base + path);
    await page.getByRole("heading", { level: 1 }).waitFor();
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: heightOf(width) });
      await check(page, world, name);
    }
  }
  await close();
}

/** A runner says of a photo that it should not be there. */
async function report(page, { gallery, photo }) {
  const status = await page.evaluate(
    async ([path, photoId]) => {
      const body = JSON.stringify({ photoId, kind: "report", note: "I would rather not be in this one." });
      const headers = { "content-type": "application/json" };
      return (await fetch(`${path}/api/gallery/report`, { method: "POST", headers, body })).status;
    },
    [gallery, photo],
  );
  assert.equal(status, 200);
}

/** Signs in the owner of the drawn album, and gives each page something to show. */
async function prepare(world) {
  const { context, close } = await openContext(world);
  const page = await context.newPage();
  await page.goto(world.enter);
  await page.getByRole("button").first().click();
  await page.getByRole("heading", { name: "Albums", level: 1 }).waitFor();
  const call = async (operation, body) => {
    const answer = await callFrom(page, operation, body);
    assert.equal(answer.status, 200, `${operation}: ${JSON.stringify(answer.body)}`);
    return answer.body;
  };
  const { drawn } = world;
  const albumId = drawn.album;
  const rules = { selfieSearch: true, browse: true, contact: "privacy@race.example", privacyUrl: "https://race.example/privacy" };
  const intro = "Well run! Find yourself by the number on your chest.";
  const gallery = await call("albums/gallery/update", { albumId, enabled: true, intro, ...rules });
  drawn.gallery = new URL(gallery.url).pathname;
  const { photos } = await call("photos/search/text/list", { albumId, text: drawn.bib });
  drawn.photo = photos[0].id;
  await call("keys/create", { label: "results page", mode: "test", scopes: ["search:read"] });
  await call("keys/create", { label: "camera truck", mode: "test", scopes: ["photo:upload"], expiresInDays: 30 });
  const invited = await call("accounts/invite", { email: "tom@race.example", role: "viewer" });
  const welcome = new URL(invited.link);
  drawn.welcome = welcome.pathname + welcome.hash;
  const webhook = await call("webhooks/create", { url: "http://127.0.0.1:44399/results", label: "results page", types: ["photo.ready"] });
  await call("webhooks/test", { webhookId: webhook.id });
  drawn.webhook = webhook.id;
  await report(page, drawn);
  const asked = { albumId, bib: "77" };
  const { preview } = await call("people/erase", { ...asked, dryRun: true });
  await call("people/erase", { ...asked, confirm: preview.confirm });
  const session = await context.storageState();
  await close();
  return session;
}
