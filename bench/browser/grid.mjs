// The grid of a large album in the console, scrolled from the first photo to the last.

import { enter, openPage } from "./tools.mjs";

/** Runs in the page: scrolls by so many pixels a frame until the end, and notes how long frames take. */
async function scrollThrough(step) {
  const tasks = [];
  const observer = new PerformanceObserver((list) => tasks.push(...list.getEntries().map((entry) => entry.duration)));
  observer.observe({ type: "longtask" });
  const frames = [];
  let nodes = 0;
  let cells = 0;
  const nextFrame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const lastCell = () => {
    const last = [...document.querySelectorAll(".grid li")].at(-1);
    return last && last.getAttribute("aria-posinset") === last.getAttribute("aria-setsize");
  };
  const started = performance.now();
  let before = await nextFrame();
  for (let frame = 0; ; frame += 1) {
    scrollBy(0, step);
    const now = await nextFrame();
    frames.push(now - before);
    before = now;
    if (frame % 20 === 0) {
      nodes = Math.max(nodes, document.getElementsByTagName("*").length);
      cells = Math.max(cells, document.querySelectorAll(".grid li").length);
      const isBelow = scrollY + innerHeight >= document.documentElement.scrollHeight - 1;
      if (isBelow && lastCell()) break;
    }
  }
  observer.disconnect();
  return { frames, tasks, nodes, cells, seconds: (performance.now() - started) / 1000, height: document.documentElement.scrollHeight };
}

async function scrollOnce(page, path, step) {
  await page.goto(path);
  await page.locator(".grid li img").first().waitFor();
  const first = await page.evaluate(() => performance.now());
  const { frames, tasks, ...rest } = await page.evaluate(scrollThrough, step);
  const session = await page.context().newCDPSession(page);
  await session.send("Performance.enable");
  const { metrics } = await session.send("Performance.getMetrics");
  const heap = metrics.find((metric) => metric.name === "JSHeapUsedSize").value;
  await session.detach();
  const slow = frames.filter((frame) => frame > 50).length;
  return { ...rest, first, heap, frames: frames.length, slow, longest: Math.max(...frames), tasks: tasks.length, longestTask: Math.max(0, ...tasks) };
}

export async function measureGrid(browser, { runs, step }) {
  const page = await openPage(browser, { viewport: { width: 1440, height: 900 } });
  await enter(page);
  const measured = [];
  for (let run = 0; run < runs; run += 1) {
    measured.push(await scrollOnce(page, `${process.env.BASE_URL}/console/albums/${process.env.ALBUM}/photos`, step));
  }
  await page.context().close();
  return measured;
}
