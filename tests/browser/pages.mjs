// Every page in both schemes, wide and narrow: nothing that axe finds, nothing wider than the window, and a picture of it. The
// runners on them are drawn.

import assert from "node:assert";

import { WIDTHS, check, resize } from "./look.mjs";
import { checkStates } from "./states.mjs";
import { callFrom, openContext } from "./tools.mjs";

/** Pages that are looked at in other languages too, in which words are longer. */
const TRANSLATED = ["albums", "album", "photos", "settings", "gallery"];
const LANGUAGES = { "de-DE": "de", "fr-FR": "fr" };

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

export async function checkPages(world) {
  const session = await prepare(world);
  for (const colorScheme of ["light", "dark"]) {
    const { context, close } = await openContext(world, { storageState: session, colorScheme, reducedMotion: "reduce" });
    const page = await context.newPage();
    world.scheme = colorScheme;
    for (const [name, path] of Object.entries(pagesOf(world.drawn))) {
      await page.goto(world.base + path);
      for (const width of WIDTHS) {
        await resize(page, width);
        await check(page, world, name);
      }
    }
    await checkStates(page, world);
    await close();
    await checkSignIn(world, colorScheme);
  }
  await checkLanguages(world, session);
}

/** The main pages on the smallest phone, where words of other languages have the least room. */
async function checkLanguages(world, storageState) {
  for (const [locale, language] of Object.entries(LANGUAGES)) {
    const { context, close } = await openContext(world, { storageState, locale, reducedMotion: "reduce" });
    const page = await context.newPage();
    await resize(page, WIDTHS[0]);
    const pages = pagesOf(world.drawn);
    for (const name of TRANSLATED) {
      await page.goto(world.base + pages[name]);
      await page.locator(`html[lang=${language}] h1`).first().waitFor();
      await check(page, world);
    }
    await close();
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
      await resize(page, width);
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
  const told = { url: "http://127.0.0.1:44399/results", label: "results page", types: ["photo.ready"], albumId };
  const webhook = await call("webhooks/create", told);
  await call("webhooks/test", { webhookId: webhook.id });
  drawn.webhook = webhook.id;
  await report(page, drawn);
  const asked = { albumId, bib: "77" };
  const { confirm } = await call("people/erase", { ...asked, dryRun: true });
  await call("people/erase", { ...asked, confirm });
  const session = await context.storageState();
  await close();
  return session;
}
