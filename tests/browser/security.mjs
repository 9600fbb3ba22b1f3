// What must be refused, tried from a real browser and beside it.

import assert from "node:assert";
import { createServer } from "node:http";

import { EMAIL, PASSWORD } from "./organizer.mjs";
import { callFrom, openContext } from "./tools.mjs";

/** A page of another site that posts a form to the console. */
async function postFromElsewhere(world, page) {
  const form = `<form method="post" enctype="text/plain" action="${world.base}/console/api/albums/create">
    <input name='{"title":"theirs","x":"' value='"}'></form><script>document.forms[0].submit()</script>`;
  const server = createServer((_, response) => response.setHeader("content-type", "text/html").end(form));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  // Another port is another origin, and another name another site.
  const { port } = server.address();
  const answer = page.waitForResponse((response) => response.url().endsWith("/albums/create"));
  await page.goto(`http://localhost:${port}/`);
  const status = (await answer).status();
  server.close();
  return status;
}

export async function securityCases(world) {
  const { context } = await openContext(world, { storageState: world.session });
  const page = await context.newPage();
  await page.goto(`${world.base}/console`);
  const before = (await callFrom(page, "albums/list")).body.total;
  assert.equal(await postFromElsewhere(world, page), 403);
  await page.goto(`${world.base}/console`);
  assert.equal((await callFrom(page, "albums/list")).body.total, before);

  await page.goto(`${world.base}/console/albums/%`);
  await page.getByRole("heading", { name: "Page not found" }).waitFor();

  const send = async (path, headers, data = "{}") => {
    const response = await page.request.post(`${world.base}${path}`, { headers, data });
    return response.status();
  };
  const json = { "content-type": "application/json" };
  const same = { ...json, "sec-fetch-site": "same-origin" };
  assert.equal((await callFrom(page, "albums/delete", { albumId: world.hostile.id })).status, 200);
  assert.equal(await fetchWithout(world, `${new URL(world.hostile.url).pathname}/api/gallery/get`), 404, "the gallery of a deleted album");
  const api = "/console/api/albums/list";
  const gallery = new URL(world.gallery).pathname;
  const other = "01932c07-93a1-7c40-8b1f-2d5e6f708192";
  const cases = [
    ["no metadata and no origin", send(api, json), 403],
    ["another site", send(api, { ...json, "sec-fetch-site": "cross-site" }), 403],
    ["a sister site", send(api, { ...json, "sec-fetch-site": "same-site" }), 403],
    ["an address typed by hand", send(api, { ...json, "sec-fetch-site": "none" }), 403],
    ["another origin", send(api, { ...json, origin: "https://evil.example" }), 403],
    ["an origin without a host", send(api, { ...json, origin: "null" }), 403],
    ["a form", send(api, { "content-type": "text/plain", "sec-fetch-site": "same-origin" }), 403],
    ["a gallery called by another site", send(`${gallery}/api/gallery/get`, { ...json, "sec-fetch-site": "cross-site" }), 403],
    ["another link", send("/g/0000000000000000000000/api/gallery/get", same), 404],
    ["a partner's operation in a gallery", send(`${gallery}/api/albums/list`, same), 404],
    ["an operation of the console with a key's mount", send("/openapi/keys/list", same), 404],
    ["the console's operations without a session", fetchWithout(world, "/console/api/keys/list"), 401],
    ["a path out of the assets", send("/assets/%2e%2e/secrets/master.key", same), 404],
  ];
  for (const [name, answer, status] of cases) assert.equal(await answer, status, name);
  const foreign = [
    ["another organization's album", "albums/get", { albumId: other }],
    ["another organization's photos", "photos/photo/list", { albumId: other }],
    ["another organization's gallery", "albums/gallery/update", { albumId: other, enabled: true }],
    ["another organization's key", "keys/revoke", { keyId: other }],
    ["another organization's account", "accounts/update", { accountId: other, disabled: true }],
    ["another account's session", "sessions/end", { sessionId: other }],
  ];
  for (const [name, operation, body] of foreign) assert.equal((await callFrom(page, operation, body)).status, 404, name);

  await endSessionBeneathPage(world, page);
  await openWithoutScripts(world);
  await context.close();
}

/** Where scripts are forbidden, pages say that they need them. */
async function openWithoutScripts(world) {
  const { context, close } = await openContext(world, { javaScriptEnabled: false });
  const page = await context.newPage();
  for (const path of ["/console", new URL(world.gallery).pathname]) {
    await page.goto(world.base + path);
    assert.match(await page.evaluate(() => document.body.innerText), /Please allow scripts for this page\./);
  }
  await close();
}

/** An ended session is over at once, also for a page that is open. */
async function endSessionBeneathPage(world, page) {
  const { context } = await openContext(world);
  const open = await context.newPage();
  await open.goto(`${world.base}/console`);
  const signedIn = await callFrom(open, "session/create", { email: EMAIL, password: PASSWORD });
  assert.equal(signedIn.status, 200);
  await open.reload();
  await open.getByRole("heading", { name: "Albums", level: 1 }).waitFor();
  assert.equal((await callFrom(page, "sessions/end", { sessionId: signedIn.body.session.id })).status, 200);
  const refused = await callFrom(open, "albums/list");
  assert.deepEqual([refused.status, refused.body.data.code], [401, "SESSION_ENDED"]);
  await context.close();
}

async function fetchWithout(world, path) {
  const headers = { "content-type": "application/json", "sec-fetch-site": "same-origin" };
  return (await fetch(`${world.base}${path}`, { method: "POST", headers, body: "{}" })).status;
}
