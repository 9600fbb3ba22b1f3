// What all measurements use.

import { chromium } from "playwright-core";

/** How long a page may take to show something, milliseconds. */
const PATIENCE = 120_000;

/** Starts the browser. A measurement in a fresh context of it has empty caches. */
export function launch() {
  const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"];
  return chromium.launch({ executablePath: process.env.CHROMIUM, args });
}

export async function openPage(browser, options = {}) {
  const context = await browser.newContext({ locale: "en-GB", ...options });
  context.setDefaultTimeout(PATIENCE);
  return context.newPage();
}

/** Signs in by a link that does it once. */
export async function enter(page) {
  await page.goto(process.env.ENTER);
  await page.getByRole("button").first().click();
  await page.getByRole("heading", { name: "Albums", level: 1 }).waitFor();
}
