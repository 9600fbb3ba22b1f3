/** The words of the console, with their keys checked by the compiler. */

import { type Loaders, translate, translateCount, translateIfThere } from "./common/words";
import type en from "./words/en.json";

/** The keys that there are words for. */
export type Key = keyof typeof en;

type Counted<K> = K extends `${infer Stem}.one` ? Stem : never;
type Values = Record<string, string | number>;

/** Loads the words of each language. */
export const loaders: Loaders = {
  en: () => import("./words/en.json"),
  de: () => import("./words/de.json"),
  fr: () => import("./words/fr.json"),
  es: () => import("./words/es.json"),
  it: () => import("./words/it.json"),
};

/** The words of a key. */
export const t: (key: Key, values?: Values) => string = translate;

/** The words of a key for a count, which they have as `{count}`. */
export const tCount: (key: Counted<Key>, count: number, values?: Values) => string = translateCount;

/** The words for one of a group of names that the service may add to; the name itself if it is a new one. */
export function tName(group: string, name: string): string {
  return translateIfThere(`${group}.${name}`) ?? name;
}
