// What the browser is sent of the pages themselves at a first visit: scripts, styles, words and the document.

import { brotliCompressSync, gzipSync } from "node:zlib";

import { enter, openPage } from "./tools.mjs";

/** The files that loading a page takes. */
async function filesOf(browser, visit) {
  const page = await openPage(browser);
  const files = new Map();
  const pending = [];
  page.on("response", (response) => {
    const kind = response.request().resourceType();
    if (response.status() !== 200 || !["document", "script", "stylesheet"].includes(kind)) return;
    // A link signs in with a document of the console too: one of them counts.
    const name = kind === "document" ? "document" : response.url();
    pending.push(response.body().then((body) => files.set(name, body)));
  });
  await visit(page);
  await Promise.all(pending);
  await page.context().close();
  return [...files.values()];
}

function sizes(name, files) {
  const sum = (compress) => files.reduce((bytes, file) => bytes + compress(file).length, 0);
  return { name, files: files.length, bytes: sum((file) => file), gzip: sum((file) => gzipSync(file, { level: 9 })), brotli: sum(brotliCompressSync) };
}

export async function measureBundles(browser) {
  const gallery = await filesOf(browser, async (page) => {
    await page.goto(process.env.GALLERY);
    await page.locator("#bib").waitFor();
  });
  const console = await filesOf(browser, enter);
  return [sizes("console", console), sizes("gallery", gallery)];
}
