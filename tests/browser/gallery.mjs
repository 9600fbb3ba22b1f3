// A runner on a phone: bib, photo, selfie by the camera after consent, forgotten again.

import assert from "node:assert";

import { checkAccessibility, checkWidth, openContext } from "./tools.mjs";

const PHONE = { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, isMobile: true, hasTouch: true };

async function findByBib(page, world) {
  await page.getByLabel("Your bib number").fill(world.bib);
  await page.getByRole("button", { name: "Find" }).click();
  await page.getByRole("heading", { name: /photos? found/ }).waitFor();
  await page.locator(".tile img").first().waitFor();
  assert.ok(page.url().endsWith(`?bib=${world.bib}`));
  // The same again: there may be more photos by now.
  const find = page.getByRole("button", { name: "Find" });
  await Promise.all([page.waitForRequest(/\/gallery\/search\/text$/), find.click()]);
  await page.locator(".tile img").first().waitFor();
  await checkAccessibility(page);
  await checkWidth(page);
  await page.locator(".tile").first().click();
  await page.getByRole("dialog").getByRole("button", { name: "Download" }).waitFor();
  await checkAccessibility(page);
  const [file] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("dialog").getByRole("button", { name: "Download" }).click(),
  ]);
  assert.match(file.suggestedFilename(), /\.(jpe?g|png|webp)$/i);
  await swipeThrough(page);
  await page.keyboard.press("Escape");
}

/** A finger goes to the next photo and back, not to the page before. */
async function swipeThrough(page) {
  const touches = await page.context().newCDPSession(page);
  const send = (type, x) => touches.send("Input.dispatchTouchEvent", { type, touchPoints: x === undefined ? [] : [{ x, y: 300 }] });
  const swipe = async (from, to) => {
    await send("touchStart", from);
    for (let step = 1; step <= 4; step += 1) await send("touchMove", from + ((to - from) * step) / 4);
    await send("touchEnd");
  };
  const previous = page.getByRole("button", { name: "Previous photo" });
  assert.ok(await previous.isDisabled(), "the first photo");
  await swipe(320, 80);
  await page.waitForFunction(() => !document.querySelector("[aria-label='Previous photo']").disabled);
  await swipe(80, 320);
  await page.waitForFunction(() => document.querySelector("[aria-label='Previous photo']").disabled);
}

/** Pages are loaded as long as there are some, though more photos have come than there were when the first page was counted. */
async function scrollToTheEnd(page, world) {
  const operation = "**/api/gallery/photos/list";
  let real;
  await page.route(operation, async (route) => {
    const { cursor } = route.request().postDataJSON();
    real ??= await (await route.fetch()).json();
    const photos = Array.from({ length: 60 }, (_, at) => {
      return { ...real.photos[at % real.photos.length], id: `${cursor ?? "first"} ${at}` };
    });
    await route.fulfill({ json: { ...real, photos, total: 40, nextCursor: cursor ? null : "second" } });
  });
  await page.goto(world.gallery);
  await page.locator(".tile").first().waitFor();
  await page.evaluate(() => scrollTo(0, document.documentElement.scrollHeight));
  await page.locator("[data-index='60'] .tile").waitFor();
  await page.unroute(operation);
}

async function findBySelfie(page, world) {
  await page.getByRole("button", { name: "Search with a selfie" }).click();
  const open = page.getByRole("button", { name: "Open the camera" });
  assert.ok(await open.isDisabled(), "no camera before the consent");
  await page.getByRole("checkbox").check();
  await checkAccessibility(page);
  await open.click();
  await page.getByRole("button", { name: "Take the picture" }).click();
  await page.getByText("Found with your selfie").waitFor();
  await page.getByRole("heading", { name: /photos? found/ }).waitFor();
  assert.ok((await page.locator(".tile").count()) > 0, "the person of the camera is found");
  await page.getByRole("button", { name: "Forget my selfie" }).click();
  await page.getByText("Your selfie and its description are deleted.").waitFor();
}

/** The longest words on the smallest phone: nothing is wider than the window. */
async function lookInGerman(page, world) {
  await page.setViewportSize({ width: 320, height: 640 });
  for (const bib of [world.bib, "0"]) {
    await page.goto(`${world.gallery}?bib=${bib}`);
    await page.getByRole("heading", { name: /Fotos? gefunden/ }).waitFor();
    await checkWidth(page);
  }
  await page.getByRole("button", { name: "Mit einem Selfie suchen" }).click();
  await page.getByRole("checkbox").waitFor();
  await checkWidth(page);
  await page.goto(`${world.gallery}?bib=${world.bib}`);
  await page.locator(".tile").first().click();
  await page.getByRole("button", { name: "Das bin ich nicht" }).waitFor();
  await checkWidth(page);
  await checkAccessibility(page);
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Mich aus diesem Event entfernen" }).click();
  await page.getByText(/Eine Startnummer kennt jeder/).waitFor();
  await checkWidth(page);
  await page.setViewportSize(PHONE.viewport);
}

export async function runnerFlow(world) {
  const { context, close } = await openContext(world, { ...PHONE, permissions: ["camera"], acceptDownloads: true });
  const page = await context.newPage();
  await page.goto(world.gallery);
  await page.getByRole("heading", { level: 1, name: "Lake Marathon 2026" }).waitFor();
  await findByBib(page, world);
  await scrollToTheEnd(page, world);
  await page.goto(world.gallery);
  await findBySelfie(page, world);
  await page.getByLabel("Language").selectOption("de");
  await page.getByText("Deine Startnummer").waitFor();
  assert.equal(await page.locator("html").getAttribute("lang"), "de");
  await lookInGerman(page, world);
  await page.goto(world.hostile.url);
  await page.getByRole("heading", { level: 1, name: world.hostile.title }).waitFor();
  await page.getByText("<script>alert(1)</script>").waitFor();
  await page.goto(`${world.base}/g/0000000000000000000000`);
  await page.getByText("Hier ist keine Galerie").waitFor();
  await close();
}
