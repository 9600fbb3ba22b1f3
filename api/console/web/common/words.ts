/** The words of a page in the visitor's language. Whoever starts it says where the words of each language are. */

import { signal } from "@preact/signals";

/** The languages that there are words in. */
export const languages = { en: "English", de: "Deutsch", fr: "Français", es: "Español", it: "Italiano" } as const;

/** A language that there are words in. */
export type Language = keyof typeof languages;

/** Words by their keys. */
export type Words = Record<string, string>;

/** Loads the words of each language. */
export type Loaders = Record<Language, () => Promise<{ default: Words }>>;

/** The language that is shown. */
export const language = signal<Language>("en");

const words = signal<Words>({});
const SAVED = "photofinish.language";
let loaders: Loaders | undefined;

/** Loads the words: of the saved language, else of the first of the browser's that there is. */
export async function startWords(from: Loaders): Promise<void> {
  loaders = from;
  await show(savedLanguage() ?? browserLanguage());
}

/** Switches the language, and remembers it if it was chosen. */
export async function switchLanguage(to: Language | null): Promise<void> {
  try {
    if (to) localStorage.setItem(SAVED, to);
    else localStorage.removeItem(SAVED);
  } catch {
    // Storage can be forbidden; the language then lasts as long as the page.
  }
  await show(to ?? browserLanguage());
}

/** Whether there are words in a language. */
export function isLanguage(name: string | null | undefined): name is Language {
  return name != null && Object.hasOwn(languages, name);
}

/** The words of a key with values in the place of `{name}`; the key itself if it has no words. */
export function translate(key: string, values: Record<string, string | number> = {}): string {
  const text = words.value[key] ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}

/** The words of a key, or undefined where it has none. */
export function translateIfThere(key: string): string | undefined {
  return words.value[key];
}

/** The words of `key.one` or `key.other`, by the count, which is `{count}` in them. */
export function translateCount(key: string, count: number, values: Record<string, string | number> = {}): string {
  const form = new Intl.PluralRules(language.value).select(count) === "one" ? "one" : "other";
  const shown = new Intl.NumberFormat(language.value).format(count);
  return translate(`${key}.${form}`, { count: shown, ...values });
}

async function show(to: Language): Promise<void> {
  if (!loaders) return;
  const loaded = await loaders[to]();
  words.value = loaded.default;
  language.value = to;
  document.documentElement.lang = to;
}

function savedLanguage(): Language | null {
  try {
    const saved = localStorage.getItem(SAVED);
    return isLanguage(saved) ? saved : null;
  } catch {
    return null;
  }
}

function browserLanguage(): Language {
  for (const tag of navigator.languages) {
    const name = tag.slice(0, 2).toLowerCase();
    if (isLanguage(name)) return name;
  }
  return "en";
}
