// The console by the keyboard alone: every control of every page is reached by Tab and shows that it has the focus, and an album
// is made, looked at and deleted without a mouse.

import assert from "node:assert";

import { openContext } from "./tools.mjs";

/** More than any page has. */
const MAX_STOPS = 400;

/** Marks the controls of a page that Tab must reach; returns how many. */
async function markControls(page) {
  return page.evaluate(() => {
    const kinds = "a[href], button, input, select, textarea, summary, [tabindex='0']";
    const isShown = (element) => element.checkVisibility({ visibilityProperty: true }) && !element.closest("[inert]");
    const isControl = (element) => !element.disabled && element.tabIndex >= 0 && element.type !== "hidden";
    const controls = [...document.querySelectorAll(kinds)].filter((element) => isShown(element) && isControl(element));
    // Of a group of radio buttons the keyboard stops at one.
    const radios = controls.filter((element) => element.type === "radio" && !element.checked);
    const stops = controls.filter((element) => !radios.includes(element));
    for (const element of stops) element.dataset.stop = "open";
    return stops.length;
  });
}

/** Presses Tab until every marked control was reached; each must look different with the focus. */
async function tabThrough(page, name) {
  const count = await markControls(page);
  assert.ok(count > 0 && count < MAX_STOPS, `${name} has ${count} controls`);
  await page.evaluate(() => document.activeElement?.blur());
  const invisible = [];
  for (let stop = 0; stop < count + 40; stop += 1) {
    await page.keyboard.press("Tab");
    const seen = await page.evaluate(() => {
      const element = document.activeElement;
      if (!element || element === document.body) return null;
      if (element.dataset.stop === "open") element.dataset.stop = "reached";
      // Hidden inputs are shown by what is around them.
      const parents = [element.parentElement, element.parentElement?.parentElement].filter(Boolean);
      const around = [element, ...parents, ...parents.flatMap((parent) => [...parent.children])];
      const styles = around.flatMap((each) => [getComputedStyle(each), getComputedStyle(each, "::after")]);
      const hasOutline = styles.some((style) => style.outlineStyle !== "none" && Number.parseFloat(style.outlineWidth) > 0);
      const hasShadow = getComputedStyle(element).boxShadow !== "none";
      return { isVisible: hasOutline || hasShadow, text: element.outerHTML.slice(0, 120) };
    });
    if (seen && !seen.isVisible) invisible.push(seen.text);
    const left = await page.evaluate(() => document.querySelectorAll("[data-stop='open']").length);
    if (left === 0) break;
  }
  const missed = await page.evaluate(() => [...document.querySelectorAll("[data-stop='open']")].map((element) => element.outerHTML.slice(0, 160)));
  assert.equal(missed.join("\n"), "", `${name}: controls that Tab does not reach`);
  assert.equal(invisible.join("\n"), "", `${name}: controls that do not show the focus`);
}

/** Presses Tab until this control has the focus. */
async function tabTo(page, control) {
  await control.waitFor();
  for (let stop = 0; stop < MAX_STOPS; stop += 1) {
    if (await control.evaluate((element) => element === document.activeElement)) return;
    await page.keyboard.press("Tab");
  }
  assert.fail(`Tab does not reach ${control}`);
}

/** Makes an album, finds it, and deletes it. */
async function makeAndDeleteAlbum(page, world) {
  await page.goto(`${world.base}/console`);
  await tabTo(page, page.getByRole("button", { name: "New album" }).first());
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog");
  await dialog.waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  // The focus is back where it was.
  await page.waitForFunction(() => document.activeElement.textContent === "New album");
  await page.keyboard.press("Enter");
  await tabTo(page, dialog.getByLabel("Title"));
  await page.keyboard.type("By keyboard");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "By keyboard", level: 1 }).waitFor();
  await tabTo(page, page.getByRole("link", { name: "Settings", exact: true }));
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Settings", level: 1 }).waitFor();
  await tabTo(page, page.getByRole("button", { name: "Delete the album" }));
  await page.keyboard.press("Enter");
  await dialog.waitFor();
  await tabTo(page, dialog.getByRole("textbox"));
  await page.keyboard.type("By keyboard");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Erasures", level: 1 }).waitFor();
  await dialog.getByRole("heading", { name: "Receipt" }).waitFor();
  await dialog.getByText("The album").waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  await page.goto(`${world.base}/console`);
  await page.getByRole("heading", { name: "Albums", level: 1 }).waitFor();
  await page.waitForFunction(() => document.querySelectorAll(".skeleton").length === 0);
  assert.equal(await page.getByText("By keyboard", { exact: true }).count(), 0);
}

/** The keys that work everywhere: into the search, and to the help. */
async function pressKeysOfAll(page, world) {
  const isSearching = () => page.waitForFunction(() => document.activeElement?.matches("[data-search]"));
  const helps = page.getByRole("dialog").getByRole("heading", { name: "Keyboard" });
  await page.goto(`${world.base}/console/account`);
  await page.getByRole("heading", { level: 1 }).waitFor();
  await page.keyboard.press("/");
  await page.getByRole("heading", { name: "Albums", level: 1 }).waitFor();
  await isSearching();
  // There they are letters.
  await page.keyboard.type("?/");
  assert.equal(await page.getByRole("searchbox").inputValue(), "?/");
  assert.equal(await helps.count(), 0);
  await page.goto(`${world.base}/console/albums/${world.album}/costs`);
  await page.getByRole("heading", { level: 1 }).waitFor();
  await page.keyboard.press("?");
  await helps.waitFor();
  await page.keyboard.press("Escape");
  await helps.waitFor({ state: "detached" });
  await page.keyboard.press("/");
  await page.waitForURL(new RegExp(`${world.album}/search$`));
  await isSearching();
}

export async function keyboardFlow(world) {
  const { context, close } = await openContext(world, { storageState: world.session, viewport: { width: 1440, height: 900 } });
  const page = await context.newPage();
  const album = `/console/albums/${world.album}`;
  const albumPages = ["", "/photos", "/failures", "/search", "/settings", "/gallery", "/costs", "/erasures"];
  const others = ["keys", "webhooks", "usage", "erasures", "accounts", "account", "activity", "operator"];
  const paths = ["/console", ...albumPages.map((path) => album + path), ...others.map((path) => `/console/${path}`), new URL(world.gallery).pathname];
  for (const path of paths) {
    await page.goto(world.base + path);
    await page.locator("h1").first().waitFor();
    await page.waitForFunction(() => document.querySelectorAll(".skeleton").length === 0);
    await tabThrough(page, path);
  }
  await pressKeysOfAll(page, world);
  await makeAndDeleteAlbum(page, world);
  await close();
}
