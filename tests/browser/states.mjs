// What pages show after a click, or for a while: dialogs, an upload at work, an album without photos, the hits of a selfie, and
// the panels of the settings below the first.

import assert from "node:assert";

import { callFrom, drawPicture, enlargePicture, holdUploads } from "./tools.mjs";
import { PICTURED, check, resize } from "./look.mjs";

/** Checks what a page shows now, at the widths of which there are pictures. */
async function checkHere(page, world, name) {
  for (const width of PICTURED) {
    await resize(page, width);
    await check(page, world, name);
  }
}

/** A photo large, and the consent. */
async function checkGallery(page, world) {
  for (const width of PICTURED) {
    await resize(page, width);
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

/** The hits of a selfie, here a drawn photo as large as a camera's, with what its runner may do about them; and the removal. */
async function checkSelfie(page, world) {
  const { album: albumId, photo: photoId } = world.drawn;
  await page.goto(`${world.base}/console`);
  const { body } = await callFrom(page, "photos/photo/get", { albumId, photoId });
  const buffer = await enlargePicture(world, await (await page.request.get(body.url)).body());
  assert.ok(buffer.length > 10_000_000, `the service would take ${buffer.length} bytes as they are`);
  await page.goto(world.base + world.drawn.gallery);
  await page.getByRole("button", { name: "Search with a selfie" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("checkbox").check();
  const sent = page.waitForRequest((request) => request.method() === "PUT");
  await dialog.getByLabel("Choose a picture").setInputFiles({ name: "me.jpg", mimeType: "image/jpeg", buffer });
  const { "content-length": bytes } = await (await sent).allHeaders();
  assert.ok(Number(bytes) < 2_000_000, `the selfie was sent with ${bytes} bytes`);
  await page.getByText("Found with your selfie").waitFor();
  await page.locator(".tile img").first().waitFor();
  // No picture of it: to the network the drawn heads are one person, so that all photos are found.
  await checkHere(page, world);
  await page.getByRole("button", { name: "Remove me from this event" }).click();
  await dialog.getByText(/Your face was found/).waitFor();
  await checkHere(page, world);
}

/** Panels that no window shows at first. */
async function checkSettings(page, world) {
  await page.goto(`${world.base}/console/albums/${world.drawn.album}/settings`);
  const form = page.getByRole("form", { name: "Bibs", exact: true });
  await form.getByLabel("Try it with a bib").fill(world.drawn.bib);
  await form.getByRole("button", { name: "Show hits" }).click();
  await form.locator(".hit").first().waitFor();
  for (const width of PICTURED) {
    await resize(page, width);
    // As high as the page is.
    const height = await page.evaluate(() => document.documentElement.scrollHeight);
    await page.setViewportSize({ width, height });
    await check(page, world, "settings-all");
  }
}

/** A delivery, and the keys. */
async function checkDialogs(page, world) {
  await page.goto(`${world.base}/console/webhooks/${world.drawn.webhook}`);
  await page.getByRole("button", { name: "Show" }).first().click();
  await page.getByRole("dialog").getByRole("button", { name: "Send again" }).waitFor();
  await checkHere(page, world, "delivery");
  await page.goto(`${world.base}/console`);
  await page.getByRole("button", { name: "New album" }).first().click();
  await page.getByRole("dialog").getByLabel("Title").fill("Night Run 2026");
  await checkHere(page, world, "new-album");
}

/** Photos that are sent and confirmed together, and those of which the upload here stops short. */
const SENT = 16;
const ALL = 24;

/** An album without photos, then with an upload to it at work. */
async function checkUpload(page, world) {
  await page.goto(`${world.base}/console`);
  const { body: album } = await callFrom(page, "albums/create", { title: "Night Run 2026" });
  await page.goto(`${world.base}/console/albums/${album.id}`);
  await page.getByText("No photos yet: drop a folder below.").waitFor();
  await checkHere(page, world, "album-empty");
  const uploads = await holdUploads(page, SENT);
  const buffer = await drawPicture(page, "image/jpeg");
  const photos = Array.from({ length: ALL }, (_, at) => ({ name: `NIGHT_${at}.jpg`, mimeType: "image/jpeg", buffer }));
  await page.getByLabel("Choose photos").setInputFiles(photos);
  await page.getByText(new RegExp(`^${SENT} of ${ALL} photos`)).waitFor();
  await checkHere(page, world, "upload");
  await page.getByRole("button", { name: "Stop" }).click();
  await page.getByText(/^Upload stopped/).waitFor();
  await uploads.end();
  await callFrom(page, "albums/delete", { albumId: album.id });
}

export async function checkStates(page, world) {
  await checkGallery(page, world);
  await checkSelfie(page, world);
  await checkSettings(page, world);
  await checkDialogs(page, world);
  await checkUpload(page, world);
}
