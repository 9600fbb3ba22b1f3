// What others do meanwhile: settings that a colleague has saved stay when a page saves that was loaded before, the counts of an
// album follow what a colleague sends, tabs in the background leave connections to the one that is seen, and the activity goes on
// where it was.

import assert from "node:assert";

import { callFrom, drawPicture, openContext } from "./tools.mjs";

const DESK = { width: 1280, height: 800 };

/** What a page changes in each panel of the settings, and what of the same panel a colleague has changed since it was loaded. */
const PANELS = [
  {
    find: (page) => page.getByRole("form", { name: "Retention", exact: true }),
    change: (panel) => panel.getByLabel("Face descriptions, days").fill("10"),
    meanwhile: { config: { retention: { photosDays: null } } },
    read: ({ config }) => config.retention,
    expected: { photosDays: null, facesDays: 10 },
  },
  {
    find: (page) => page.getByRole("form", { name: "Pictures", exact: true }),
    change: (panel) => panel.getByLabel("Previews have the watermark").check(),
    meanwhile: { config: { preview: { maxDimension: 1000 }, thumbnail: { maxDimension: 200 } } },
    read: ({ config }) => [config.preview.maxDimension, config.preview.watermarked, config.thumbnail.maxDimension],
    expected: [1000, true, 200],
  },
  {
    find: (page) => page.getByRole("form", { name: "Bib format", exact: true }),
    change: (panel) => panel.getByLabel("Format", { exact: true }).fill("999"),
    meanwhile: { config: { bibPattern: "[0-9]{1,3}" } },
    read: ({ config }) => [config.bibFormat, config.bibPattern],
    expected: ["999", "[0-9]{1,3}"],
  },
  {
    find: (page) => page.getByRole("form", { name: "Bibs", exact: true }),
    change: (panel) => panel.getByRole("slider", { name: "Threshold" }).fill("60"),
    meanwhile: { config: { text: { mode: "grid", grid: { rows: 2, columns: 2, cellWidth: 1024, cellHeight: 1024 } } } },
    read: ({ config }) => [config.text.confidenceThreshold, config.text.mode],
    expected: [60, "grid"],
  },
  {
    find: (page) => page.getByRole("region", { name: "Start list", exact: true }),
    change: async (panel) => {
      await panel.getByText("More", { exact: true }).click();
      await panel.getByLabel("Runners who are not on it, %").fill("10");
    },
    meanwhile: { config: { startList: { enabled: false } } },
    read: ({ config }) => config.startList,
    expected: { enabled: false, offListShare: 0.1 },
  },
  {
    find: (page) => page.getByRole("form", { name: "Album", exact: true }),
    change: (panel) => panel.getByLabel("Title", { exact: true }).fill("Hill Run at Night"),
    meanwhile: { tags: ["hills"] },
    read: ({ title, tags }) => [title, tags],
    expected: ["Hill Run at Night", ["hills"]],
  },
];

async function create(page, input) {
  const { status, body } = await callFrom(page, "albums/create", input);
  assert.equal(status, 200, JSON.stringify(body));
  return body.id;
}

async function remove(page, albumId) {
  assert.equal((await callFrom(page, "albums/delete", { albumId })).status, 200);
}

/** Settings are what they are when their page is opened, and what nobody has touched there is not saved. */
async function keepSettings(page, colleague) {
  const albumId = await create(colleague, { title: "Hill Run 2026", config: { retention: { photosDays: 30, facesDays: 20 } } });
  const update = async (change) => {
    const { status, body } = await callFrom(colleague, "albums/update", { albumId, ...change });
    assert.equal(status, 200, JSON.stringify(body));
  };
  await page.goto(new URL(`/console/albums/${albumId}`, colleague.url()).href);
  await page.getByRole("heading", { name: "Hill Run 2026", level: 1 }).waitFor();
  await update({ title: "Hill Run 2027" });
  await page.getByRole("link", { name: "Settings", exact: true }).click();
  await page.locator(".eyebrow").getByRole("link", { name: "Hill Run 2027" }).waitFor();
  assert.equal(await page.getByLabel("Title", { exact: true }).inputValue(), "Hill Run 2027");
  for (const { find, change, meanwhile, read, expected } of PANELS) {
    await update(meanwhile);
    const panel = find(page);
    await change(panel);
    // The page loads them again after it has saved them.
    const loaded = page.waitForResponse((response) => response.url().endsWith("/albums/get"));
    await panel.getByRole("button", { name: "Save", exact: true }).click();
    await loaded;
    const { body } = await callFrom(colleague, "albums/get", { albumId });
    assert.deepEqual(read(body), expected);
  }
  assert.equal(await page.getByLabel("Photos, days").inputValue(), "", "the page shows what the colleague has saved");
  await remove(colleague, albumId);
}

/** What is set back to its old value while the new one is being saved stays set back, and can be saved. */
async function setBackMeanwhile(page, colleague) {
  const albumId = await create(colleague, { title: "Hill Run 2030" });
  await page.goto(new URL(`/console/albums/${albumId}/settings`, colleague.url()).href);
  const panel = page.getByRole("form", { name: "Album", exact: true });
  const title = panel.getByLabel("Title", { exact: true });
  const save = panel.getByRole("button", { name: "Save", exact: true });
  let letGo;
  const isLetGo = new Promise((resolve) => (letGo = resolve));
  await page.route("**/console/api/albums/update", async (route) => {
    await isLetGo;
    await route.continue();
  });
  await title.fill("Hill Run 2031");
  const sent = page.waitForRequest((request) => request.url().endsWith("/albums/update"));
  await save.click();
  await sent;
  await title.fill("Hill Run 2030");
  letGo();
  const above = page.locator(".eyebrow");
  await above.getByRole("link", { name: "Hill Run 2031" }).waitFor();
  assert.equal(await title.inputValue(), "Hill Run 2030");
  await panel.locator("button[type=submit]:not([aria-busy])").waitFor();
  await save.click();
  await above.getByRole("link", { name: "Hill Run 2030" }).waitFor();
  await page.unroute("**/console/api/albums/update");
  await remove(colleague, albumId);
}

/** Opens the overview of an album and sends a photo to it. */
async function sendPhoto(page, address) {
  await page.goto(address);
  const buffer = await drawPicture(page, "image/jpeg");
  await page.getByLabel("Choose photos").setInputFiles({ name: "HILL_1.jpg", mimeType: "image/jpeg", buffer });
  await page.getByText("Upload finished").waitFor();
}

/** Counts follow what a colleague sends, while the pipeline is busy with other albums all the time. */
async function followCounts(page, colleague) {
  const albumId = await create(colleague, { title: "Hill Run 2028" });
  const address = new URL(`/console/albums/${albumId}`, colleague.url()).href;
  const busy = { bottleneck: null, processes: [{ photosInFlight: 1 }], stages: [] };
  const body = `data: ${JSON.stringify(busy)}\n\n`;
  await page.route("**/console/api/pipeline/get", (route) => route.fulfill({ contentType: "text/event-stream", body }));
  const isBusy = page.waitForResponse((response) => response.url().endsWith("/pipeline/get"));
  await page.goto(address);
  await page.getByText("No photos yet: drop a folder below.").waitFor();
  await isBusy;
  await sendPhoto(colleague, address);
  await page.getByText("1 photos, all done.").waitFor();
  await page.unroute("**/console/api/pipeline/get");
  await remove(colleague, albumId);
}

/** Tells a page that its tab is in the background, or no longer. Browsers without windows never tell it. */
async function setHidden(page, isHidden) {
  await page.evaluate((hidden) => {
    Object.defineProperty(document, "hidden", { configurable: true, value: hidden });
    Object.defineProperty(document, "visibilityState", { configurable: true, value: hidden ? "hidden" : "visible" });
    document.dispatchEvent(new Event("visibilitychange"));
  }, isHidden);
}

/** The activity that is hidden and seen again lists what has happened meanwhile, and nothing twice. */
async function followActivity(page, colleague) {
  const albums = [];
  for (const title of ["Hill Run 2032", "Hill Run 2033", "Hill Run 2034"]) albums.push(await create(colleague, { title }));
  const [before, seen, hidden] = albums;
  // Albums that were deleted before their titles were read are shown by their ids.
  const find = (albumId) => page.locator(".events li").filter({ hasText: "Album deleted" }).filter({ hasText: albumId });
  await remove(colleague, before);
  await page.goto(new URL("/console/activity", colleague.url()).href);
  await find(before).waitFor();
  await remove(colleague, seen);
  await find("Hill Run 2033").waitFor();
  await setHidden(page, true);
  await remove(colleague, hidden);
  await setHidden(page, false);
  await find(hidden).waitFor();
  for (const albumId of albums) assert.equal(await find(albumId).count(), 1);
}

/** How many connections to a host browsers open at once, without TLS. */
const CONNECTIONS = 6;

/** Tabs in the background hold no connections, and show what has come meanwhile when they are seen again. */
async function openManyTabs(world) {
  const { context, close } = await openContext(world, { storageState: world.session, viewport: DESK });
  const seen = await context.newPage();
  await seen.goto(`${world.base}/console`);
  const albumId = await create(seen, { title: "Hill Run 2029" });
  const address = `${world.base}/console/albums/${albumId}`;
  await seen.goto("about:blank");
  const tabs = [];
  for (let count = 0; count < CONNECTIONS; count += 1) {
    const tab = await context.newPage();
    const isFollowing = tab.waitForResponse((response) => response.url().endsWith("/pipeline/get"));
    await tab.goto(address);
    await tab.getByText("No photos yet: drop a folder below.").waitFor();
    await isFollowing;
    await setHidden(tab, true);
    tabs.push(tab);
  }
  await sendPhoto(seen, address);
  await seen.getByText("1 photos, all done.").waitFor();
  await setHidden(tabs[0], false);
  await tabs[0].getByText("1 photos, all done.").waitFor();
  await remove(seen, albumId);
  await close();
}

export async function colleaguesFlow(world) {
  const { context, close } = await openContext(world, { storageState: world.session, viewport: DESK });
  const [page, colleague] = [await context.newPage(), await context.newPage()];
  await colleague.goto(`${world.base}/console`);
  await keepSettings(page, colleague);
  await setBackMeanwhile(page, colleague);
  await followCounts(page, colleague);
  await followActivity(page, colleague);
  await close();
  await openManyTabs(world);
}
