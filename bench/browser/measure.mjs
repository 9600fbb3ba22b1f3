// Measures pages in a real browser: `node measure.mjs gallery|bundles|grid|upload`, and prints what was measured as JSON.
//
// Environment: CHROMIUM, the browser; BASE_URL; OPTIONS, how to measure, as JSON; GALLERY and BIB, for the gallery; ENTER, a link
// that signs an organizer in once, and ALBUM, for the console; FOLDER, what is uploaded.

import { measureBundles } from "./bundles.mjs";
import { measureGallery } from "./gallery.mjs";
import { measureGrid } from "./grid.mjs";
import { launch } from "./tools.mjs";
import { measureUpload } from "./upload.mjs";

const measurements = { gallery: measureGallery, bundles: measureBundles, grid: measureGrid, upload: measureUpload };
const browser = await launch();
const measured = await measurements[process.argv[2]](browser, JSON.parse(process.env.OPTIONS ?? "{}"));
console.log(JSON.stringify({ browser: browser.version(), measured }));
await browser.close();
