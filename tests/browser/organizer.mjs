// An organizer: invitation, album, folder, photos, search, key, gallery.

import assert from "node:assert";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

import { PATIENCE, callFrom, openContext } from "./tools.mjs";

/** Who is invited, and the password that is chosen. */
export const EMAIL = "anna@race.example";
export const PASSWORD = "four wet dogs run";

/** The first half of the files of the folder, and all of them. */
function halves(folder) {
  const files = readdirSync(folder).sort().map((name) => join(folder, name));
  return [files.slice(0, files.length / 2), files];
}

async function acceptInvitation(page, world) {
  await page.goto(world.welcome);
  await page.getByLabel("Name").fill("Anna Organizer");
  await page.getByLabel("New password").fill("password1234");
  await page.getByRole("button", { name: "Begin" }).click();
  await page.getByText("Too many people use this password.").waitFor();
  await page.getByLabel("New password").fill(PASSWORD);
  await page.getByRole("button", { name: "Begin" }).click();
  await page.getByRole("heading", { name: "Albums", level: 1 }).waitFor();
  await page.goto(world.welcome);
  await page.getByRole("heading", { name: "This link has been used" }).waitFor();
  await page.getByRole("link", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Albums", level: 1 }).waitFor();
}

/** Signs out, and in again by the keyboard alone. */
async function signInByKeyboard(page, world) {
  await page.goto(`${world.base}/console`);
  assert.equal((await callFrom(page, "session/delete")).status, 200);
  await page.reload();
  const email = page.getByLabel(/mail/i);
  await email.waitFor();
  await email.focus();
  await page.keyboard.type(EMAIL);
  await page.keyboard.press("Tab");
  await page.keyboard.type(PASSWORD);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Albums", level: 1 }).waitFor();
}

async function createAlbum(page) {
  await page.getByRole("button", { name: "New album" }).first().click();
  await page.getByRole("dialog").getByLabel("Title").fill("Lake Marathon 2026");
  await page.getByRole("dialog").getByRole("button", { name: "Create" }).click();
  await page.getByRole("heading", { name: "Lake Marathon 2026", level: 1 }).waitFor();
  return new URL(page.url()).pathname.split("/")[3];
}

/** Waits until all photos are ready. The service may be starting again. */
export async function waitUntilReady(page, album, count) {
  const end = Date.now() + 4 * PATIENCE;
  for (;;) {
    const answer = await callFrom(page, "albums/progress", { albumId: album }).catch(() => undefined);
    if (answer?.body.ready === count) return;
    if (answer?.body.failed > 0) {
      const { body } = await callFrom(page, "photos/photo/list", { albumId: album, state: "failed" });
      assert.fail(`photos failed: ${JSON.stringify(body.photos.map(({ filename, failure }) => [filename, failure]))}`);
    }
    assert.ok(Date.now() < end, `not all are ready: ${JSON.stringify(answer?.body)}`);
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}

/** Uploads a folder; the service hangs in the middle and goes on, then is killed and started again by the test. */
async function upload(page, world, album) {
  const [first, all] = halves(world.photos);
  const choose = page.getByLabel("Choose photos");
  const pid = Number(process.env.SERVICE_PID);
  process.kill(pid, "SIGSTOP");
  // Twice, before the service answers: sent once, or there would be more photos than files below.
  await choose.setInputFiles(first);
  await choose.setInputFiles(first);
  await new Promise((resolve) => setTimeout(resolve, 2000));
  process.kill(pid, "SIGCONT");
  await page.getByText("Upload finished").waitFor();
  process.kill(pid, "SIGKILL");
  await choose.setInputFiles(all);
  await page.getByText("Upload finished").waitFor({ timeout: 4 * PATIENCE });
  await page.getByText(/all done/).waitFor({ timeout: 4 * PATIENCE });
  // Both words may still be those of the first half.
  await waitUntilReady(page, album, all.length);
  return all.length;
}

async function lookAtPhotos(page, world, album, count) {
  await page.goto(`${world.base}/console/albums/${album}/photos`);
  await page.locator("main img").first().waitFor();
  assert.equal(await page.locator(".grid li img").count(), count);
  await page.locator(".grid li a").first().click();
  await page.getByText("Taken").or(page.getByText("Size")).first().waitFor();
  const first = page.url();
  await page.keyboard.press("j");
  await page.waitForURL((url) => url.href !== first);
  await page.getByText("Previous").waitFor();
  await page.locator("main img").first().waitFor();
  await page.keyboard.press("k");
  await page.waitForURL(first);
}

async function search(page, world, album) {
  await page.goto(`${world.base}/console/albums/${album}/photos`);
  await page.getByRole("heading", { name: "Photos", level: 1 }).waitFor();
  await page.keyboard.press("/");
  await page.waitForURL(/\/search$/);
  await page.waitForFunction(() => document.activeElement?.matches("[data-search]"));
  await page.keyboard.type(world.bib);
  await page.keyboard.press("Enter");
  await page.getByText(/photos? found/).first().waitFor();
  await page.locator("main img").first().waitFor();
  await walkThroughHits(page);
}

/** From hit to hit, there and back, and back to the hits, which are not searched for again. */
async function walkThroughHits(page) {
  const hits = await page.locator(".hit").evaluateAll((links) => links.map((link) => link.href));
  assert.ok(hits.length > 1, "the sample has several photos of the runner");
  await page.locator(".hit").first().click();
  await page.waitForURL(hits[0]);
  await page.locator("button[aria-keyshortcuts='k']:disabled").waitFor();
  const press = async (key, to) => {
    await page.locator(`button[aria-keyshortcuts='${key}']:enabled`).waitFor();
    await page.keyboard.press(key);
    await page.waitForURL(to);
    await page.getByRole("heading", { name: /\.(jpg|png|webp)$/i, level: 1 }).waitFor();
  };
  for (const hit of hits.slice(1)) await press("j", hit);
  for (const hit of hits.slice(0, -1).reverse()) await press("k", hit);
  const searches = [];
  page.on("request", (request) => request.url().includes("/photos/search/") && searches.push(request.url()));
  await page.locator(".eyebrow").getByRole("link", { name: "Search" }).click();
  await page.locator(".hit").first().waitFor();
  assert.deepEqual(searches, []);
}

async function makeKey(page, world) {
  await page.goto(`${world.base}/console/keys`);
  await page.getByRole("button", { name: "New key" }).first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel(/Label|Name/).first().fill("results page");
  await dialog.getByRole("button", { name: "Create" }).click();
  const secret = await page.getByRole("dialog").locator("input[readonly]").inputValue();
  assert.match(secret, /^svc_test_/);
  const answer = await page.request.post(`${world.base}/openapi/albums/list`, { headers: { "x-api-key": secret }, data: {} });
  assert.equal(answer.status(), 200);
}

/** Opened by its form, without a word of its end. */
async function openByForm(page, world, album) {
  await page.goto(`${world.base}/console/albums/${album}/gallery`);
  await page.getByLabel("The gallery is open").check();
  await page.getByRole("button", { name: "Save", exact: true }).first().click();
  await page.getByText("Saved").first().waitFor();
  const { body } = await callFrom(page, "albums/gallery/get", { albumId: album });
  assert.match(body.expiresAt ?? "never", /^\d{4}-/);
}

async function openGallery(page, album, intro) {
  const settings = {
    albumId: album,
    enabled: true,
    browse: true,
    selfieSearch: true,
    contact: "privacy@race.example",
    privacyUrl: "https://race.example/privacy",
    intro,
  };
  const { status, body } = await callFrom(page, "albums/gallery/update", settings);
  assert.equal(status, 200, JSON.stringify(body));
  return body.url;
}

/** What an album's retention erases within a week is said on its pages. */
async function seeBanner(page, world, albumId) {
  const banner = page.getByText(/This album and its photos are erased on/);
  assert.equal(await banner.count(), 0);
  const { status } = await callFrom(page, "albums/update", { albumId, config: { retention: { photosDays: 5 } } });
  assert.equal(status, 200);
  await page.goto(`${world.base}/console/albums/${albumId}`);
  await banner.waitFor();
}

/** Words of people are text, whatever they look like. */
async function makeHostileAlbum(page, world) {
  const title = "<img src=x onerror=alert(1)>";
  const { body } = await callFrom(page, "albums/create", { title });
  await page.goto(`${world.base}/console/albums/${body.id}`);
  await page.getByRole("heading", { name: title, level: 1 }).waitFor();
  await seeBanner(page, world, body.id);
  const url = await openGallery(page, body.id, "<script>alert(1)</script>");
  const filename = '"><img src=x onerror=alert(1)>.jpg';
  await page.goto(`${world.base}/console/albums/${body.id}`);
  const [file] = readdirSync(world.photos).sort();
  const photo = { name: filename, mimeType: "image/jpeg", buffer: readFileSync(join(world.photos, file)) };
  await page.getByLabel("Choose photos").setInputFiles(photo);
  await page.getByText("Upload finished").waitFor();
  await waitUntilReady(page, body.id, 1);
  await page.goto(`${world.base}/console/albums/${body.id}/photos`);
  await page.locator(".grid li a").first().click();
  await page.getByRole("heading", { name: filename, level: 1 }).waitFor();
  return { id: body.id, title, url };
}

export async function organizerFlow(world) {
  const { context, close } = await openContext(world, { viewport: { width: 1280, height: 800 } });
  const page = await context.newPage();
  await acceptInvitation(page, world);
  await signInByKeyboard(page, world);
  world.album = await createAlbum(page);
  const count = await upload(page, world, world.album);
  await lookAtPhotos(page, world, world.album, count);
  await search(page, world, world.album);
  await makeKey(page, world);
  await openByForm(page, world, world.album);
  world.gallery = await openGallery(page, world.album, "Well run! Find yourself by your number.");
  world.hostile = await makeHostileAlbum(page, world);
  world.session = await context.storageState();
  await close();
}
