// A viewer is led to no page that is refused: every link that is shown is followed.

import assert from "node:assert";

import { callFrom, openContext } from "./tools.mjs";

/** What viewers have no link to. */
const HIDDEN = ["Usage", "Erasures", "Webhooks", "API keys", "People", "Operation", "Settings", "Gallery", "Costs"];

/** Invites a viewer, as the owner of the world's session; returns the link. */
async function inviteViewer(world) {
  const { context, close } = await openContext(world, { storageState: world.session });
  const page = await context.newPage();
  await page.goto(`${world.base}/console`);
  const { status, body } = await callFrom(page, "accounts/invite", { email: "vera@race.example", role: "viewer" });
  assert.equal(status, 200, JSON.stringify(body));
  await close();
  return body.link;
}

/** Pages of one kind, such as those of photos, differ in the ids of their addresses alone. */
function kindOf(path) {
  return path.replace(/[0-9a-f-]{36}/g, "*");
}

/** The paths of the console that a page links to. */
async function linksOf(page) {
  const paths = await page.locator("a[href]").evaluateAll((links) => links.map((link) => new URL(link.href).pathname));
  return paths.filter((path) => path.startsWith("/console"));
}

export async function viewerFlow(world) {
  const link = await inviteViewer(world);
  const { context, close } = await openContext(world, { viewport: { width: 1280, height: 800 } });
  const page = await context.newPage();
  const refused = [];
  page.on("response", (response) => response.status() === 403 && refused.push(`${page.url()}: ${response.url()}`));
  await page.goto(link);
  await page.getByLabel("Name").fill("Vera Viewer");
  await page.getByLabel("New password").fill("five dry cats rest");
  await page.getByRole("button", { name: "Begin" }).click();
  await page.getByRole("heading", { name: "Albums", level: 1 }).waitFor();

  const waiting = ["/console", `/console/albums/${world.album}`];
  const seen = new Set();
  for (let path = waiting.shift(); path !== undefined; path = waiting.shift()) {
    if (seen.has(kindOf(path))) continue;
    seen.add(kindOf(path));
    await page.goto(world.base + path);
    await page.locator("h1").first().waitFor();
    await page.waitForFunction(() => document.querySelectorAll(".skeleton").length === 0);
    for (const name of HIDDEN) assert.equal(await page.getByRole("link", { name, exact: true }).count(), 0, `${path}: ${name}`);
    waiting.push(...(await linksOf(page)));
  }
  assert.deepEqual(refused, []);
  // Those of the navigation, of an album and of its photos, and that of a photo.
  assert.ok(seen.size >= 8, `${[...seen]}`);

  // Typed by hand they are not there, and ask for nothing.
  for (const path of ["/usage", "/erasures", "/webhooks", `/albums/${world.album}/costs`, `/albums/${world.album}/erasures`]) {
    await page.goto(`${world.base}/console${path}`);
    await page.getByRole("heading", { name: "Page not found", level: 1 }).waitFor();
  }
  assert.deepEqual(refused, []);
  await close();
}
