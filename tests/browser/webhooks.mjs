// A webhook: made, tested, edited, given a new secret; what its receiver refused is sent again, also where there is no receiver.

import assert from "node:assert";
import { createServer } from "node:http";

import { PATIENCE, callFrom, checkAccessibility, openContext } from "./tools.mjs";

/** A server of this program that keeps what it is told. It refuses while `status` says so. */
async function startReceiver() {
  const receiver = { told: [], status: 200 };
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (piece) => (body += piece));
    request.on("end", () => {
      receiver.told.push({ signature: request.headers["webhook-signature"], body });
      response.writeHead(receiver.status).end();
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  receiver.url = `http://127.0.0.1:${server.address().port}/photos`;
  receiver.stop = () => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  };
  return receiver;
}

async function makeWebhook(page, world, receiver) {
  await page.goto(`${world.base}/console/webhooks`);
  await page.getByRole("button", { name: "New webhook" }).first().click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Address").fill(receiver.url);
  await dialog.getByLabel("Label").fill("results");
  await dialog.getByRole("button", { name: "Create" }).click();
  await page.getByRole("dialog").getByText("Copy it now").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("link", { name: "results" }).click();
  await sendTest(page);
  const [delivery] = receiver.told;
  assert.ok(delivery?.signature, "the server was told, signed");
  assert.equal(typeof JSON.parse(delivery.body).type, "string");
  await checkAccessibility(page);
}

/** Sends a test, and waits until its row is the first of the deliveries. */
async function sendTest(page) {
  const rows = page.getByRole("table", { name: "Deliveries" }).locator("tbody tr");
  const before = await rows.count();
  await page.getByRole("button", { name: "Send a test" }).click();
  await page.waitForFunction((count) => document.querySelectorAll("table tbody tr").length === count, before + 1);
}

async function editWebhook(page) {
  await page.getByRole("button", { name: "Edit" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel("Label").fill("results and failures");
  await dialog.getByLabel("Album done").uncheck();
  await checkAccessibility(page);
  await dialog.getByRole("button", { name: "Save" }).click();
  await page.getByRole("heading", { name: "results and failures", level: 1 }).waitFor();
  const { body } = await callFrom(page, "webhooks/get", { webhookId: new URL(page.url()).pathname.split("/")[3] });
  assert.deepEqual(body.types, ["photo.ready", "photo.failed"]);
}

/** A new secret is made once it is confirmed, and what is sent is then signed with both. */
async function rotateSecret(page, receiver) {
  await page.getByRole("button", { name: "New secret" }).click();
  const dialog = page.getByRole("dialog", { name: "New secret" });
  await dialog.getByText("stops signing at once").waitFor();
  await checkAccessibility(page);
  await dialog.getByRole("button", { name: "Cancel" }).click();
  await dialog.waitFor({ state: "detached" });
  await sendTest(page);
  assert.equal(receiver.told.at(-1).signature.split(" ").length, 1, "nothing is rotated before it is confirmed");
  await page.getByRole("button", { name: "New secret" }).click();
  await dialog.getByRole("button", { name: "Create" }).click();
  await page.getByRole("dialog").getByText("Copy it now").waitFor();
  await page.keyboard.press("Escape");
  await sendTest(page);
  assert.equal(receiver.told.at(-1).signature.split(" ").length, 2);
}

/**
 * When the service attempts by itself what failed once more, at the earliest: its pauses of 5 s, 60 s and 5 minutes less a
 * tenth, milliseconds after it was sent again. A busy machine may take as long to show the attempt before.
 */
const OWN_ATTEMPTS = [4_500, 58_500, 328_500];

/** Reloads until the page shows a delivery in a state with so many attempts or more, opens it, and returns how many it shows. */
async function showAttempts(page, row, { state, attempts }) {
  const dialog = page.getByRole("dialog");
  const end = Date.now() + PATIENCE;
  while (Date.now() < end) {
    const answered = page.waitForResponse((response) => response.url().endsWith("/webhooks/deliveries/list"));
    await page.getByRole("button", { name: "Reload" }).click();
    await answered;
    await page.getByRole("button", { name: "Reload" }).and(page.locator(":enabled")).waitFor();
    // An attempt is counted when it begins: its outcome, in the state and among the attempts, is stored later.
    if (Number(await row.locator("td").nth(4).innerText()) < attempts) continue;
    if (!(await row.getByText(state).isVisible())) continue;
    await row.getByRole("button", { name: "Show" }).click();
    await dialog.locator("ol > li").first().waitFor();
    const shown = await dialog.locator("ol > li").count();
    if (shown >= attempts) return shown;
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
  }
  return assert.fail(`the page shows no attempt of ${attempts} with the state ${state}`);
}

/** Sends the newest delivery again, and reloads until the page shows the attempt. */
async function sendAgain(page, { answer, state, attempts }) {
  const row = page.getByRole("table", { name: "Deliveries" }).locator("tbody tr").first();
  await row.getByText("Failed").waitFor();
  await row.getByText(answer).waitFor();
  await row.getByRole("button", { name: "Show" }).click();
  const dialog = page.getByRole("dialog");
  // Not in the body, whose ids may have the same digits.
  await dialog.locator("p").filter({ hasText: answer }).first().waitFor();
  assert.equal(await dialog.locator("ol > li").count(), 1);
  await checkAccessibility(page);
  const sent = Date.now();
  await dialog.getByRole("button", { name: "Send again" }).click();
  await page.getByText("It is sent again").waitFor();
  await dialog.waitFor({ state: "detached" });
  const shown = await showAttempts(page, row, { state, attempts });
  const elapsed = Date.now() - sent;
  const own = state === "Waiting" ? OWN_ATTEMPTS.filter((earliest) => elapsed >= earliest).length : 0;
  assert.ok(shown <= attempts + own, `${shown} attempts ${elapsed} ms after it was sent again`);
  // What waits for its next attempt cannot be sent twice.
  assert.equal(await dialog.getByRole("button", { name: "Send again" }).count(), state === "Waiting" ? 0 : 1);
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
}

export async function webhookFlow(world) {
  const { context, close } = await openContext(world, { storageState: world.session, viewport: { width: 1280, height: 800 } });
  const page = await context.newPage();
  const receiver = await startReceiver();
  await makeWebhook(page, world, receiver);
  await editWebhook(page);
  await rotateSecret(page, receiver);
  receiver.status = 503;
  await sendTest(page);
  receiver.status = 200;
  await sendAgain(page, { answer: "503", state: "Delivered", attempts: 2 });
  await receiver.stop();
  await sendTest(page);
  await sendAgain(page, { answer: "The address refuses connections", state: "Waiting", attempts: 2 });
  await close();
}
