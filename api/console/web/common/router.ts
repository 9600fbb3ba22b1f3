/** Which page is shown, by the address. Ordinary links work: clicks on those below the base are taken over. */

import { signal } from "@preact/signals";

/** Where the visitor is; `path` is below the base and begins with a slash. */
export interface Place {
  path: string;
  query: URLSearchParams;
}

/** The place that is shown. */
export const place = signal<Place>({ path: "/", query: new URLSearchParams() });

/** How often the visitor has navigated; 0 on the page that was opened first. */
export const navigations = signal(0);

/** The path that was shown before; empty on the page that was opened first. */
export const previousPath = signal("");

let base = "";

/** Begins to follow the address. `root` is the path of the first page, without a slash at the end. */
export function startRouter(root: string): void {
  base = root;
  const read = () => {
    const path = location.pathname.slice(base.length).replace(/\/+$/, "") || "/";
    place.value = { path, query: new URLSearchParams(location.search) };
  };
  addEventListener("popstate", () => {
    leave();
    read();
  });
  document.addEventListener("click", takeOver);
  read();
}

/** The address of a path below the base. */
export function link(path: string): string {
  return base + path;
}

/** Shows a path below the base. */
export function navigate(path: string, replace = false): void {
  const address = link(path);
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  const [pathname = "/", query = ""] = path.split("?");
  const isOther = pathname !== place.value.path;
  if (isOther) leave();
  place.value = { path: pathname.replace(/\/+$/, "") || "/", query: new URLSearchParams(query) };
  if (isOther) scrollTo(0, 0);
}

function leave(): void {
  navigations.value += 1;
  previousPath.value = place.value.path;
}

/** Changes one value of the query in place; an empty one is removed. */
export function setQuery(name: string, value: string): void {
  const query = new URLSearchParams(place.value.query);
  if (value) query.set(name, value);
  else query.delete(name);
  const text = query.toString();
  navigate(place.value.path + (text ? `?${text}` : ""), true);
}

/** The values of a pattern such as `/albums/:album/photos`, or null where the path has another form. */
export function match(pattern: string, path: string): Record<string, string> | null {
  const wanted = pattern.split("/");
  const parts = path.split("/");
  if (wanted.length !== parts.length) return null;
  const values: Record<string, string> = {};
  for (const [index, part] of parts.entries()) {
    const want = wanted[index] ?? "";
    if (want.startsWith(":")) {
      const value = decode(part);
      if (value === null) return null;
      values[want.slice(1)] = value;
    } else if (want !== part) return null;
  }
  return values;
}

/** A part of an address; null where it was typed or cut so that it is none. */
function decode(part: string): string | null {
  try {
    return decodeURIComponent(part);
  } catch {
    return null;
  }
}

function takeOver(event: MouseEvent): void {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const anchor = (event.target as Element | null)?.closest?.("a");
  if (!anchor || anchor.target || anchor.hasAttribute("download") || anchor.origin !== location.origin) return;
  const isBelow = anchor.pathname === base || anchor.pathname.startsWith(`${base}/`);
  if (!isBelow || anchor.hash) return;
  event.preventDefault();
  navigate(anchor.pathname.slice(base.length) + anchor.search || "/");
}
