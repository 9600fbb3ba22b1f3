// What all flows use.

import { AssertionError } from "node:assert";
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/** How long a page may take to show something. Networks read photos meanwhile, and other tests run. */
export const PATIENCE = Number(process.env.PATIENCE ?? 120_000);

/** Opens a context whose pages must not log errors or load anything from elsewhere. */
export async function openContext(world, options = {}) {
  const context = await world.browser.newContext({ locale: "en-GB", ...options });
  context.setDefaultTimeout(PATIENCE);
  const problems = [];
  context.on("page", (page) => {
    page.on("pageerror", (error) => problems.push(`${page.url()}: ${error}`));
    page.on("console", (message) => {
      // A response that the page expects, such as 401 before the sign-in, is logged by the browser too.
      if (message.type() === "error" && !message.text().includes("Failed to load resource")) {
        problems.push(`${page.url()}: ${message.text()}`);
      }
    });
    page.on("request", (request) => {
      const url = new URL(request.url());
      if (url.protocol.startsWith("http") && url.origin !== new URL(world.base).origin) problems.push(`${page.url()} loads ${url}`);
    });
  });
  const close = async () => {
    await context.close();
    if (problems.length > 0) throw new AssertionError({ message: problems.join("\n") });
  };
  return { context, close };
}

/** Fails with what axe finds wrong on a page. */
export async function checkAccessibility(page) {
  // Not as an element of the page: its policy forbids scripts of others.
  await page.evaluate(axe);
  const violations = await page.evaluate(async () => {
    // While a button's colour changes, its contrast is that of neither. Endless animations are left out.
    const ending = document.getAnimations().filter(({ effect }) => Number.isFinite(effect?.getComputedTiming().endTime));
    await Promise.all(ending.map((animation) => animation.finished.catch(() => {})));
    const result = await globalThis.axe.run(document, { resultTypes: ["violations"], rules: { "target-size": { enabled: true } } });
    return result.violations.map((violation) => ({
      id: violation.id,
      help: violation.help,
      nodes: violation.nodes.map((node) => `${node.target.join(" ")}: ${node.failureSummary}`),
    }));
  });
  if (violations.length > 0) {
    throw new AssertionError({ message: `${page.url()}: ${JSON.stringify(violations, null, 2)}` });
  }
}

/** Fails where a page is wider than its window. */
export async function checkWidth(page) {
  const [wide, window] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
  if (wide > window) throw new AssertionError({ message: `${page.url()} is ${wide} px wide in a window of ${window}` });
}

/** Calls an operation as a page of this host does, with the session of a context. */
export async function callFrom(page, operation, body = {}, headers = {}) {
  return page.evaluate(
    async ([operation, body, headers]) => {
      const response = await fetch(`/console/api/${operation}`, {
        method: "POST",
        headers: { "content-type": "application/json", ...headers },
        body: JSON.stringify(body),
      });
      return { status: response.status, body: await response.json() };
    },
    [operation, body, headers],
  );
}

/** A file of a red mark, drawn by the browser. Words make it differ from others. */
export async function drawPicture(page, type, words = "") {
  const draw = ([type, words]) => {
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [200, 80];
    const context = canvas.getContext("2d");
    context.fillStyle = "#f00";
    context.fillRect(20, 20, 160, 40);
    context.fillText(words, 0, 76);
    return canvas.toDataURL(type);
  };
  const url = await page.evaluate(draw, [type, words]);
  return Buffer.from(url.split(",")[1], "base64");
}

/** A JPEG made as large as a camera's: 12 megapixels with noise, so that it has more bytes than a selfie may have. */
export async function enlargePicture(world, jpeg) {
  const enlarge = async (data) => {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/jpeg" }));
    const scale = Math.sqrt(12_000_000 / (bitmap.width * bitmap.height));
    const canvas = new OffscreenCanvas(Math.round(bitmap.width * scale), Math.round(bitmap.height * scale));
    const context = canvas.getContext("2d");
    context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    const picture = context.getImageData(0, 0, canvas.width, canvas.height);
    for (let at = 0; at < picture.data.length; at += 1) picture.data[at] += at % 4 === 3 ? 0 : Math.random() * 10 - 5;
    context.putImageData(picture, 0, 0);
    const blob = await canvas.convertToBlob({ type: "image/jpeg", quality: 1 });
    const reader = new FileReader();
    return new Promise((resolve) => {
      reader.onload = () => resolve(reader.result.split(",")[1]);
      reader.readAsDataURL(blob);
    });
  };
  return Buffer.from(await world.converter.evaluate(enlarge, jpeg.toString("base64")), "base64");
}

/** Holds the photos that a page sends after the first so many, until they are let go. */
export async function holdUploads(page, free) {
  const held = [];
  const watching = [];
  let count = 0;
  let isOpen = false;
  const tell = () => watching.splice(0).forEach((wake) => wake());
  const handle = async (route) => {
    if (route.request().method() !== "PUT") return route.fallback();
    count += 1;
    if (count > free && !isOpen) {
      await new Promise((resolve) => {
        held.push(resolve);
        tell();
      });
    }
    // Whoever gives the upload up has taken the request back.
    return route.continue().catch(() => undefined);
  };
  await page.route("**", handle);
  const letAllGo = () => {
    isOpen = true;
    held.splice(0).forEach((release) => release());
  };
  return {
    count: () => count,
    letAllGo,
    waitForHeld: async (least) => {
      while (held.length < least) await new Promise((resolve) => watching.push(resolve));
    },
    end: async () => {
      letAllGo();
      await page.unroute("**", handle);
    },
  };
}

/** Keeps a picture of a page as WebP, a quarter of the bytes of PNG. The browser itself converts it, on a page of its own. */
export async function takePicture(page, world, name) {
  const png = await page.screenshot({ scale: "css", animations: "disabled" });
  const webp = await world.converter.evaluate(async (data) => {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    const bitmap = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
    const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
    canvas.getContext("2d").drawImage(bitmap, 0, 0);
    const blob = await canvas.convertToBlob({ type: "image/webp", quality: 0.5 });
    const reader = new FileReader();
    return new Promise((resolve) => {
      reader.onload = () => resolve(reader.result.split(",")[1]);
      reader.readAsDataURL(blob);
    });
  }, png.toString("base64"));
  writeFileSync(`${world.screens}/${name}.webp`, Buffer.from(webp, "base64"));
}
