// What an organizer does with pictures and with those who watch: a watermark and who sees it, files of many photos, a threshold
// and hits around it, a filter, a QR code.

import assert from "node:assert";
import { readFileSync } from "node:fs";

import { callFrom, checkAccessibility, drawPicture, openContext } from "./tools.mjs";

async function setWatermark(page, world) {
  await page.goto(`${world.base}/console/albums/${world.album}/gallery`);
  const panel = page.getByRole("region", { name: "Watermark" });
  const choose = panel.getByLabel("Choose a PNG");
  await choose.setInputFiles({ name: "no.png", mimeType: "image/png", buffer: Buffer.from("no picture") });
  await panel.getByRole("button", { name: "Save" }).click();
  await panel.getByText("This is no PNG that can be used as a watermark.").waitFor();
  await choose.setInputFiles({ name: "mark.png", mimeType: "image/png", buffer: await drawPicture(page, "image/png") });
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

/** Hits of a bib above and below the threshold: they follow the slider, and nothing is saved by it. */
async function sampleThreshold(page, world) {
  await page.goto(`${world.base}/console/albums/${world.album}/settings`);
  const form = page.getByRole("form", { name: "Bibs", exact: true });
  const slider = form.getByRole("slider", { name: "Threshold" });
  await slider.waitFor();
  const saves = [];
  page.on("request", (request) => request.url().endsWith("/albums/update") && saves.push(request.url()));
  const asked = { albumId: world.album, text: world.bib, minConfidence: 0, limit: 1000 };
  const { body } = await callFrom(page, "photos/search/text/list", asked);
  const hits = body.photos.map((hit) => hit.confidence);
  const follow = async (threshold) => {
    await slider.fill(String(threshold));
    const above = hits.filter((confidence) => confidence >= threshold).length;
    for (const [at, words, amount] of [[0, "above", above], [1, "below", hits.length - above]]) {
      const side = form.locator(".sides > section").nth(at);
      await side.getByRole("heading", { name: `Just ${words}: ${amount} ${amount === 1 ? "hit" : "hits"}`, exact: true }).waitFor();
      // At most so many pictures.
      assert.equal(await side.locator(".hit").count(), Math.min(amount, 4));
      assert.equal(await side.getByText("No hits on this side.").count(), amount === 0 ? 1 : 0);
    }
  };
  await form.getByLabel("Try it with a bib").fill(world.bib);
  await form.getByRole("button", { name: "Show hits" }).click();
  await follow(0);
  // Between the hits, if their confidences differ, and beyond all of them where none is certain.
  await follow(Math.round((Math.min(...hits) + Math.max(...hits)) / 2));
  await follow(100);
  await checkAccessibility(page);
  // Enter asks for a sample too, and does not save the panel around it.
  const again = page.waitForResponse((response) => response.url().endsWith("/photos/search/text/list"));
  await form.getByLabel("Try it with a bib").press("Enter");
  await again;
  assert.deepEqual(saves, []);
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

export async function picturesFlow(world) {
  const options = { storageState: world.session, viewport: { width: 1280, height: 800 }, acceptDownloads: true };
  const { context, close } = await openContext(world, options);
  const page = await context.newPage();
  await setWatermark(page, world);
  const count = await compareWithGallery(page, world);
  assert.ok(count > 1, "the sample has several photos of the runner");
  await fetchFiles(page, world, count);
  await sampleThreshold(page, world);
  await setThreshold(page, world);
  await filterPhotos(page, world);
  await close();
}
