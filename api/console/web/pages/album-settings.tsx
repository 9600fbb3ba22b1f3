/** The pages of an album that are rarely opened: a part of the program that is loaded on demand. */

export { CostsPage } from "./costs";
export { ErasuresPage } from "./erasures";
export { GalleryPage } from "./gallery-settings";
export { SettingsPage } from "./settings";
