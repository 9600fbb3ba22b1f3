// A runner asks to be removed, the organizer looks whose face it is, dismisses a request and grants another.

import assert from "node:assert";

import { callFrom, checkAccessibility, openContext } from "./tools.mjs";

const PHONE = { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true };

/** Searches with the camera's picture, and asks to be removed; returns how many photos were found. */
async function askToBeRemoved(page, world) {
  const answer = page.waitForResponse((response) => response.url().endsWith("/search/face/list"));
  await page.goto(world.gallery);
  await page.getByRole("button", { name: "Search with a selfie" }).click();
  await page.getByRole("checkbox").check();
  await page.getByRole("button", { name: "Open the camera" }).click();
  await page.getByRole("button", { name: "Take the picture" }).click();
  const { total } = await (await answer).json();
  if (total === 0) return 0;
  await page.getByRole("button", { name: "Remove me from this event" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText(/The organizer is told/).waitFor();
  await checkAccessibility(page);
  await dialog.getByRole("button", { name: "Ask the organizer" }).click();
  await dialog.getByText(/^Sent:/).waitFor();
  return total;
}

/** Without a selfie: by the bib, which anybody knows. */
async function askByBib(page, world) {
  await page.goto(`${world.gallery}?bib=${world.bib}`);
  await page.getByRole("button", { name: "Remove me from this event" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText(/Anybody knows a bib number/).waitFor();
  await checkAccessibility(page);
  await dialog.getByRole("button", { name: "Ask the organizer" }).click();
  await dialog.getByText(/^Sent:/).waitFor();
}

async function openReports(page, world) {
  await page.goto(`${world.base}/console/albums/${world.album}/gallery`);
  const panel = page.getByRole("region", { name: "What runners said of photos" });
  await panel.getByText("Asks to be removed").waitFor();
  return panel;
}

/** Dismisses what was asked by a bib, then removes whoever wears it. */
async function answerByBib(runner, organizer, world) {
  await askByBib(runner, world);
  let panel = await openReports(organizer, world);
  await panel.getByText(`By bib ${world.bib}`).waitFor();
  await checkAccessibility(organizer);
  await panel.getByRole("button", { name: "Dismiss" }).click();
  await panel.getByText("Nothing was reported.").waitFor();
  await askByBib(runner, world);

  panel = await openReports(organizer, world);
  await panel.getByRole("button", { name: "Remove a runner" }).click();
  const dialog = organizer.getByRole("dialog");
  assert.equal(await dialog.getByLabel("Bib", { exact: true }).inputValue(), world.bib);
  await dialog.getByRole("button", { name: "Show what it takes" }).click();
  await dialog.getByText(/faces? ·/).waitFor();
  await dialog.getByRole("button", { name: "Erase for good" }).click();
  await panel.getByText("Nothing was reported.").waitFor();
  const { body } = await callFrom(organizer, "erasures/list", { albumId: world.album });
  assert.equal(body.erasures[0].subject.kind, "bib");
  const asked = { albumId: world.album, text: world.bib, exact: true };
  assert.equal((await callFrom(organizer, "photos/search/text/list", asked)).body.total, 0);
}

export async function removalFlow(world) {
  const phone = await openContext(world, { ...PHONE, permissions: ["camera"] });
  const desk = await openContext(world, { storageState: world.session, viewport: { width: 1280, height: 800 } });
  const [runner, organizer] = [await phone.context.newPage(), await desk.context.newPage()];
  const found = await askToBeRemoved(runner, world);
  assert.ok(found > 0, "the runner of the camera is in photos");

  let panel = await openReports(organizer, world);
  await checkAccessibility(organizer);
  await panel.getByRole("button", { name: "Dismiss" }).click();
  await panel.getByText("Nothing was reported.").waitFor();
  assert.equal(await askToBeRemoved(runner, world), found, "nothing was erased");

  panel = await openReports(organizer, world);
  await panel.getByRole("link", { name: "Photo 1" }).click();
  await organizer.locator(".box-lit").waitFor();
  panel = await openReports(organizer, world);
  await panel.getByRole("button", { name: "Erase these faces" }).click();
  const dialog = organizer.getByRole("dialog");
  await dialog.getByRole("button", { name: "Show what it takes" }).click();
  await dialog.getByText(/faces? ·/).waitFor();
  await checkAccessibility(organizer);
  await dialog.getByRole("button", { name: "Erase for good" }).click();
  await panel.getByText("Nothing was reported.").waitFor();
  const { body } = await callFrom(organizer, "erasures/list", { albumId: world.album });
  assert.equal(body.erasures[0].subject.kind, "face");
  assert.ok(body.erasures[0].removed.vectors >= 1);
  assert.equal(await askToBeRemoved(runner, world), 0, "searches find the runner no more");
  await answerByBib(runner, organizer, world);
  await phone.close();
  await desk.close();
}
