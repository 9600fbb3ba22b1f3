// Photos that are selected on the page of an album and fetched as one file; filters; what a runner fetches under a watermark,
// which is then removed; what is wrong with a start list.

import assert from "node:assert";
import { readFileSync } from "node:fs";

import { callFrom, checkAccessibility, checkWidth, openContext } from "./tools.mjs";

const PHONE = { width: 390, height: 844 };
const DESK = { width: 1280, height: 800 };

/** The files in a ZIP file by their names, from its directory (APPNOTE 4.3.12). They are stored as they are. */
function readZip(path) {
  const file = readFileSync(path);
  const end = file.lastIndexOf(Buffer.from("PK\u0005\u0006", "latin1"));
  assert.ok(end > 0, "the file is whole");
  const entries = new Map();
  let at = file.readUInt32LE(end + 16);
  for (let left = file.readUInt16LE(end + 10); left > 0; left -= 1) {
    assert.equal(file.readUInt32LE(at), 0x02014b50, "an entry of the directory");
    assert.equal(file.readUInt16LE(at + 10), 0, "stored");
    const [name, extra, comment] = [28, 30, 32].map((offset) => file.readUInt16LE(at + offset));
    const [bytes, start] = [file.readUInt32LE(at + 24), file.readUInt32LE(at + 42)];
    // The header before the bytes has a name and an extra field of its own.
    const from = start + 30 + file.readUInt16LE(start + 26) + file.readUInt16LE(start + 28);
    entries.set(file.toString("utf8", at + 46, at + 46 + name), file.subarray(from, from + bytes));
    at += 46 + name + extra + comment;
  }
  return entries;
}

/** What a runner fetches as one file are marked pictures alone. */
async function fetchMarkedPhotos(page, world) {
  const { body } = await callFrom(page, "photos/search/text/list", { albumId: world.album, text: world.bib });
  const clean = await Promise.all(body.photos.map(async (hit) => (await page.request.get(hit.url)).body()));
  await page.goto(`${world.gallery}?bib=${world.bib}`);
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("button", { name: `Download all ${clean.length} photos` }).click(),
  ]);
  const files = [...readZip(await download.path()).values()];
  assert.equal(files.length, clean.length);
  for (const file of files) {
    assert.equal(file.readUInt16BE(0), 0xffd8, "a JPEG");
    assert.ok(clean.every((picture) => !picture.equals(file)), "with the watermark");
  }
}

/** Two photos by the keyboard alone, then all of them. */
async function selectPhotos(page, world) {
  await page.goto(`${world.base}/console/albums/${world.album}/photos?state=ready`);
  const links = page.locator(".grid li a");
  await links.first().waitFor();
  const wanted = [await links.nth(0).getAttribute("title"), await links.nth(1).getAttribute("title")];
  await links.first().focus();
  await page.keyboard.press("x");
  const bar = page.getByRole("region", { name: "Selected photos" });
  await bar.getByText("1 photo selected").waitFor();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("x");
  await bar.getByText("2 photos selected").waitFor();
  await checkAccessibility(page);
  await page.setViewportSize(PHONE);
  await checkWidth(page);
  await page.setViewportSize(DESK);
  await bar.getByLabel("Size").selectOption("original");
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    bar.getByRole("button", { name: "Download as ZIP" }).click(),
  ]);
  assert.match(download.suggestedFilename(), /\.zip$/);
  const names = [...readZip(await download.path()).keys()];
  assert.equal(names.length, 2);
  // The service puts the time before them.
  assert.ok(wanted.every((name) => names.some((entry) => entry.endsWith(name))), `${names} for ${wanted}`);
  assert.ok(page.url().endsWith("/photos?state=ready"), "the page stays");
  await bar.getByRole("button", { name: "Select all" }).click();
  const { body } = await callFrom(page, "photos/photo/list", { albumId: world.album, state: "ready" });
  await bar.getByText(`${body.total} photos selected`).waitFor();
  await links.first().focus();
  await page.keyboard.press("Escape");
  await bar.waitFor({ state: "hidden" });
}

async function filterByCamera(page, world) {
  await page.goto(`${world.base}/console/albums/${world.album}/photos`);
  const { body } = await callFrom(page, "albums/cameras/list", { albumId: world.album });
  const { camera, photos } = body.cameras.find((each) => each.camera !== null);
  await page.getByLabel("Camera").selectOption(camera);
  await page.waitForURL((url) => url.searchParams.get("camera") === camera);
  await page.getByText(`${photos} photos`, { exact: true }).waitFor();
  // The address holds it, and takes it back.
  await page.reload();
  assert.equal(await page.getByLabel("Camera").inputValue(), camera);
  await page.getByRole("button", { name: "Clear the filter" }).click();
  await page.waitForURL((url) => url.search === "");
}

/** A mark that is removed stays so, and its settings begin again. */
async function removeWatermark(page, world) {
  await page.goto(`${world.base}/console/albums/${world.album}/gallery`);
  const panel = page.getByRole("region", { name: "Watermark" });
  await panel.getByLabel("Opacity").fill("80");
  await panel.getByText("The picture shows what is saved.").waitFor();
  await panel.getByRole("button", { name: "Remove the watermark" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Remove the watermark" }).click();
  await page.getByText("Watermark removed").waitFor();
  await page.reload();
  await panel.getByLabel("Opacity").waitFor();
  assert.equal(await panel.getByLabel("Opacity").inputValue(), "35");
  const { body } = await callFrom(page, "albums/watermark/get", { albumId: world.album });
  assert.equal(body.watermark, null);
}

async function importOddList(page, world) {
  const { body: album } = await callFrom(page, "albums/create", { title: "A start list" });
  await page.goto(`${world.base}/console/albums/${album.id}/settings`);
  const csv = "name,bib,wave\n\"Ada \"\"A\"\"\",101,A\nBo,DNS,A\nCy,101,B\n";
  await page.getByLabel("Choose a CSV file").setInputFiles({ name: "list.csv", mimeType: "text/csv", buffer: Buffer.from(csv) });
  await page.getByText("These columns stay in your browser: name").waitFor();
  const sending = page.waitForRequest((request) => request.url().endsWith("/albums/startlist/import"));
  await page.getByRole("button", { name: "Import", exact: true }).click();
  assert.equal((await sending).postDataJSON().csv, '"bib","wave"\n"101","A"\n"DNS","A"\n"101","B"\n');
  await page.getByText("Line 3: not a bib").waitFor();
  await page.getByText("Line 4: this bib is in the list twice").waitFor();
  await checkAccessibility(page);
  assert.equal((await callFrom(page, "albums/delete", { albumId: album.id })).status, 200);
}

export async function selectionFlow(world) {
  const { context, close } = await openContext(world, { storageState: world.session, viewport: DESK, acceptDownloads: true });
  const page = await context.newPage();
  await selectPhotos(page, world);
  await filterByCamera(page, world);
  await fetchMarkedPhotos(page, world);
  await removeWatermark(page, world);
  await importOddList(page, world);
  await close();
}
