// The bottleneck of the pipeline, lit and named while one stage is slow.
//
// Environment: BASE_URL; ENTER, a link that signs in once; ALBUM, whose photos are being processed; STAGE, the slow one, in the
// words of the page; CHROMIUM, the browser.

import assert from "node:assert";

import { chromium } from "playwright-core";

import { PATIENCE, checkAccessibility, openContext } from "./tools.mjs";

const { BASE_URL, ENTER, ALBUM, STAGE, CHROMIUM } = process.env;

const browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox", "--disable-gpu", "--no-first-run"] });
const { context, close } = await openContext({ browser, base: BASE_URL });
const page = await context.newPage();
await page.goto(ENTER);
await page.getByRole("button").first().click();
await page.getByRole("heading", { name: "Albums", level: 1 }).waitFor();
await page.goto(`${BASE_URL}/console/albums/${ALBUM}`);
await page.getByText(`The bottleneck is “${STAGE}”`).waitFor({ timeout: PATIENCE });
assert.match(await page.locator(".stage-lit").innerText(), new RegExp(STAGE));
assert.equal(await page.locator(".stage-lit").count(), 1);
await checkAccessibility(page);
await close();
await browser.close();
console.log(`ok - the bottleneck is named: ${STAGE}`);
