/** The words of galleries, with their keys checked by the compiler. */

import { type Loaders, translate, translateCount } from "../common/words";
import type en from "../words/gallery/en.json";

/** The keys that there are words for. */
export type Key = keyof typeof en;

type Counted<K> = K extends `${infer Stem}.one` ? Stem : never;
type Values = Record<string, string | number>;

/** Loads the words of each language. */
export const loaders: Loaders = {
  en: () => import("../words/gallery/en.json"),
  de: () => import("../words/gallery/de.json"),
  fr: () => import("../words/gallery/fr.json"),
  es: () => import("../words/gallery/es.json"),
  it: () => import("../words/gallery/it.json"),
};

/** The words of a key. */
export const t: (key: Key, values?: Values) => string = translate;

/** The words of a key for a count, which they have as `{count}`. */
export const tCount: (key: Counted<Key>, count: number, values?: Values) => string = translateCount;
