// A folder is dropped, its upload paused and resumed; the same folder is chosen with more in it; the numbers add up.

import assert from "node:assert";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { waitUntilReady } from "./organizer.mjs";
import { callFrom, checkAccessibility, drawPicture, holdUploads, openContext } from "./tools.mjs";

/** Photos that a page sends at once. */
const AT_ONCE = 4;

/** Puts photos into a folder of the folder. */
async function addPhotos(page, folder, names) {
  for (const name of names) {
    const path = join(folder, name);
    mkdirSync(join(path, ".."), { recursive: true });
    writeFileSync(path, await drawPicture(page, "image/jpeg", name));
  }
}

/** Drops a folder on an element, as a hand does that drags it there from the desktop. */
async function dropOn(page, element, folder) {
  await element.scrollIntoViewIfNeeded();
  const box = await element.boundingBox();
  const devtools = await page.context().newCDPSession(page);
  const data = { items: [], files: [folder], dragOperationsMask: 1 };
  for (const type of ["dragEnter", "dragOver", "drop"]) {
    await devtools.send("Input.dispatchDragEvent", { type, x: box.x + box.width / 2, y: box.y + box.height / 2, data });
  }
  await devtools.detach();
}

/** What the summary of a finished upload says, by its words. */
async function readSummary(panel) {
  await panel.getByText("Upload finished").waitFor();
  const rows = await panel.locator(".sum > div").evaluateAll((all) => all.map((row) => [...row.children].map((cell) => cell.textContent)));
  const { "Photos found": found, ...parts } = Object.fromEntries(rows.map(([words, amount]) => [words, Number(amount)]));
  const sum = Object.values(parts).reduce((total, amount) => total + amount, 0);
  assert.equal(sum, found, JSON.stringify(rows));
  return { sent: parts["Uploaded"], skipped: parts["Already in the album, by name"], found };
}

/** Paused in its middle, an upload sends what is on its way and nothing more, until it goes on. */
async function pauseAndResume(page, panel, album, folder) {
  const uploads = await holdUploads(page, 0);
  await dropOn(page, panel, folder);
  await uploads.waitForHeld(AT_ONCE);
  await panel.getByRole("button", { name: "Pause" }).click();
  uploads.letAllGo();
  await panel.getByText(`Paused at ${AT_ONCE} of 10 photos`).waitFor();
  await checkAccessibility(page);
  // Long enough for others to be sent.
  await waitUntilReady(page, album, AT_ONCE);
  assert.equal(uploads.count(), AT_ONCE, "nothing is sent after the pause");
  await panel.getByText(`Paused at ${AT_ONCE} of 10 photos`).waitFor();
  await panel.getByRole("button", { name: "Resume" }).click();
  assert.deepEqual(await readSummary(panel), { sent: 10, skipped: 0, found: 10 });
  assert.equal(uploads.count(), 10, "each is sent once");
  await uploads.end();
}

/** The same names again, of another camera: into a folder of the album. */
async function sendAsSecondCamera(page, panel, albumId, folder, names) {
  await panel.getByText("Put them into a folder").click();
  await panel.getByLabel("Name of the folder").fill(" second camera/ ");
  await checkAccessibility(page);
  await panel.getByLabel("Choose a folder").setInputFiles(folder);
  const isAllSent = (count) => document.querySelector(".sum dd")?.textContent === String(count);
  await page.waitForFunction(isAllSent, names.length);
  assert.deepEqual(await readSummary(panel), { sent: names.length, skipped: 0, found: names.length });
  const { body } = await callFrom(page, "photos/photo/list", { albumId });
  const wanted = [...names, ...names.map((name) => `second camera/${name}`)].sort();
  assert.deepEqual(body.photos.map((photo) => photo.filename).sort(), wanted);
}

export async function folderFlow(world) {
  const { context, close } = await openContext(world, { storageState: world.session, viewport: { width: 1280, height: 800 } });
  const page = await context.newPage();
  const folder = mkdtempSync(join(tmpdir(), "photos-"));
  await page.goto(`${world.base}/console`);
  const { body: album } = await callFrom(page, "albums/create", { title: "A folder" });
  const start = Array.from({ length: 7 }, (_, number) => `start/${number}.jpg`);
  const finish = Array.from({ length: 3 }, (_, number) => `finish/line/${number}.jpg`);
  await addPhotos(page, folder, [...start, ...finish]);
  writeFileSync(join(folder, "start", "notes.txt"), "no photo");

  await page.goto(`${world.base}/console/albums/${album.id}`);
  const panel = page.getByRole("region", { name: "Upload photos" });
  await panel.waitFor();
  await pauseAndResume(page, panel, album.id, folder);
  await panel.getByText("1 other file was left out.").waitFor();

  await addPhotos(page, folder, ["finish/late.jpg", "late.jpg"]);
  await panel.getByLabel("Choose a folder").setInputFiles(folder);
  await page.waitForFunction(() => document.querySelector(".sum-total dd")?.textContent === "12");
  assert.deepEqual(await readSummary(panel), { sent: 2, skipped: 10, found: 12 });
  const { body } = await callFrom(page, "photos/photo/list", { albumId: album.id });
  const names = body.photos.map((photo) => photo.filename).sort();
  assert.deepEqual(names, [...start, ...finish, "finish/late.jpg", "late.jpg"].sort());
  await sendAsSecondCamera(page, panel, album.id, folder, names);
  assert.equal((await callFrom(page, "albums/delete", { albumId: album.id })).status, 200);
  rmSync(folder, { recursive: true });
  await close();
}
