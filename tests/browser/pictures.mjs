// What an organizer does with pictures and with those who watch: a watermark and who sees it, files of many photos, a threshold,
// a filter, a QR code, a webhook.

import assert from "node:assert";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";

import { callFrom, checkAccessibility, openContext } from "./tools.mjs";

/** A red PNG, drawn by the browser. */
async function drawMark(page) {
  const url = await page.evaluate(() => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [200, 80];
    const context = canvas.getContext("2d");
    context.fillStyle = "#f00";
    context.fillRect(20, 20, 160, 40);
    return canvas.toDataURL("image/png");
  });
  return Buffer.from(url.split(",")[1], "base64");
}

async function setWatermark(page, world) {
  await page.goto(`${world.base}/console/albums/${world.album}/gallery`);
  const panel = page.getByRole("region", { name: "Watermark" });
  const choose = panel.getByLabel("Choose a PNG");
  await choose.setInputFiles({ name: "no.png", mimeType: "image/png", buffer: Buffer.from("no picture") });
  await panel.getByRole("button", { name: "Save" }).click();
  await panel.getByText("This is no PNG that can be used as a watermark.").waitFor();
  await choose.setInputFiles({ name: "mark.png", mimeType: "image/png", buffer: await drawMark(page) });
  await panel.getByLabel("Position").selectOption("center");
  await panel.getByLabel("Opacity").fill("100");
  await panel.locator("canvas").waitFor();
  await checkAccessibility(page);
  await panel.getByRole("button", { name: "Save" }).click();
  await panel.getByText(/photos? (is|are) marked/).waitFor();
  const qr = page.getByAltText("QR code of the link");
  assert.ok((await qr.evaluate((image) => image.naturalWidth)) > 0, "the QR code is drawn");
}

/** Calls the gallery from its page. */
function callGallery(page, operation, body) {
  return page.evaluate(
    async ([operation, body]) => {
      const path = location.pathname.split("/").slice(0, 3).join("/");
      const init = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
      return (await fetch(`${path}/api/gallery/${operation}`, init)).json();
    },
    [operation, body],
  );
}

/** Nothing that a visitor can load is the clean picture. */
async function compareWithGallery(page, world) {
  const { body: hits } = await callFrom(page, "photos/search/text/list", { albumId: world.album, text: world.bib });
  const bytes = async (url) => (await (await page.request.get(url)).body()).toString("base64");
  const clean = new Set(await Promise.all(hits.photos.map((hit) => bytes(hit.url))));
  await page.goto(world.gallery);
  await page.getByRole("heading", { level: 1 }).waitFor();
  const seen = await callGallery(page, "search/text", { text: world.bib });
  assert.equal(seen.photos.length, hits.photos.length);
  for (const photo of seen.photos) {
    assert.ok(!clean.has(await bytes(photo.url)), "a gallery shows marked pictures alone");
    const { url } = await callGallery(page, "download", { photoId: photo.id });
    assert.ok(!clean.has(await bytes(url)), "and gives no others");
  }
  return hits.photos.length;
}

/** How many files a ZIP file has, by the end of its directory. */
async function countEntries(download) {
  const file = readFileSync(await download.path());
  const end = file.lastIndexOf(Buffer.from("PK\u0005\u0006", "latin1"));
  assert.ok(end > 0, "the file is whole");
  return file.readUInt16LE(end + 10);
}

async function downloadAll(page, name) {
  const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name }).click()]);
  assert.match(download.suggestedFilename(), /\.zip$/);
  return countEntries(download);
}

async function fetchFiles(page, world, count) {
  await page.goto(`${world.gallery}?bib=${world.bib}`);
  assert.equal(await downloadAll(page, "Download all"), count);
  await page.goto(`${world.base}/console/albums/${world.album}/search?bib=${world.bib}`);
  await page.getByLabel("Size").selectOption("original");
  assert.equal(await downloadAll(page, "Download all as ZIP"), count);
}

async function setThreshold(page, world) {
  await page.goto(`${world.base}/console/albums/${world.album}/settings`);
  const form = page.locator("form").filter({ has: page.getByRole("heading", { name: "Bibs" }) });
  const slider = form.getByRole("slider", { name: "Threshold" });
  await slider.fill("60");
  await form.getByRole("button", { name: "Save" }).click();
  await page.getByText("Saved", { exact: true }).first().waitFor();
  const { body } = await callFrom(page, "albums/get", { albumId: world.album });
  assert.equal(body.config.text.confidenceThreshold, 60);
  const { body: hits } = await callFrom(page, "photos/search/text/list", { albumId: world.album, text: world.bib });
  assert.ok(hits.photos.every((hit) => hit.confidence >= 60));
}

async function filterPhotos(page, world) {
  await page.goto(`${world.base}/console/albums/${world.album}/photos`);
  await page.locator(".grid li img").first().waitFor();
  await page.getByLabel("Taken from").fill("2090-01-01T00:00");
  await page.getByText("No such photos").waitFor();
  assert.match(page.url(), /from=2090/);
  await checkAccessibility(page);
}

/** A webhook that tells a server of this program. */
async function makeWebhook(page, world) {
  const told = [];
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (piece) => (body += piece));
    request.on("end", () => {
      told.push({ signature: request.headers["webhook-signature"], body });
      response.end();
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  await page.goto(`${world.base}/console/webhooks`);
  await page.getByRole("button", { name: "New webhook" }).first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Address").fill(`http://127.0.0.1:${server.address().port}/photos`);
  await dialog.getByLabel("Label").fill("results");
  await dialog.getByRole("button", { name: "Create" }).click();
  await page.getByRole("dialog").getByText("Copy it now").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("link", { name: "results" }).click();
  await page.getByRole("button", { name: "Send a test" }).click();
  await page.getByText("Test sent").waitFor();
  const [delivery] = told;
  assert.ok(delivery?.signature, "the server was told, signed");
  assert.equal(typeof JSON.parse(delivery.body).type, "string");
  await checkAccessibility(page);
  await editWebhook(page);
  await new Promise((resolve) => server.close(resolve));
}

async function editWebhook(page) {
  await page.getByRole("button", { name: "Edit" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Label").fill("results and failures");
  await dialog.getByLabel("Album done").uncheck();
  await checkAccessibility(page);
  await dialog.getByRole("button", { name: "Save" }).click();
  await page.getByRole("heading", { name: "results and failures", level: 1 }).waitFor();
  const { body } = await callFrom(page, "webhooks/get", { webhookId: new URL(page.url()).pathname.split("/")[3] });
  assert.deepEqual(body.types, ["photo.ready", "photo.failed"]);
}

export async function picturesFlow(world) {
  const options = { storageState: world.session, viewport: { width: 1280, height: 800 }, acceptDownloads: true };
  const { context, close } = await openContext(world, options);
  const page = await context.newPage();
  await setWatermark(page, world);
  const count = await compareWithGallery(page, world);
  assert.ok(count > 1, "the sample has several photos of the runner");
  await fetchFiles(page, world, count);
  await setThreshold(page, world);
  await filterPhotos(page, world);
  await makeWebhook(page, world);
  await close();
}
