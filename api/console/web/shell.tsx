/** The frame of every page: where one can go, the mode, and the keys that work everywhere. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { mode } from "./calls";
import { link, match, navigate, navigations, place } from "./common/router";
import { Button } from "./common/ui/button";
import { Dialog } from "./common/ui/dialog";
import { Notices, notify } from "./common/ui/notice";
import { Empty } from "./common/ui/states";
import { language } from "./common/words";
import { may, session, signOut, switchMode } from "./session";
import { type Key, t } from "./text";
import type { Mode } from "./types";

/** The frame. */
export function Shell({ children }: { children: ComponentChildren }) {
  const isHelpOpen = useSignal(false);
  const isMenuOpen = useSignal(false);
  useKeys(() => (isHelpOpen.value = true));
  useEffect(() => {
    isMenuOpen.value = false;
  }, [place.value.path]);
  return (
    <div class={`shell mode-${mode.value}`}>
      <a class="skip" href="#main" onClick={skip}>
        {t("shell.skip")}
      </a>
      <header class="shell-head">
        <div class="shell-brand">
          <a href={link("/")}>Photofinish</a>
          <Button
            kind="quiet"
            aria-expanded={isMenuOpen.value}
            aria-controls="navigation"
            onClick={() => (isMenuOpen.value = !isMenuOpen.value)}
          >
            {t("shell.menu")}
          </Button>
        </div>
        <div id="navigation" class={isMenuOpen.value ? "shell-menu open" : "shell-menu"}>
          <Navigation />
          <ModeSwitch />
          <Person onHelp={() => (isHelpOpen.value = true)} />
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        {children}
      </main>
      <Notices />
      {isHelpOpen.value && <Keys onClose={() => (isHelpOpen.value = false)} />}
    </div>
  );
}

function skip(event: Event): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function Navigation() {
  const pages: [path: string, words: Key, isShown: boolean][] = [
    ["/", "nav.albums", true],
    ["/activity", "nav.activity", true],
    ["/usage", "nav.usage", may.organize.value],
    ["/erasures", "album.erasures", may.organize.value],
    ["/webhooks", "nav.webhooks", may.organize.value],
    ["/keys", "nav.keys", may.own.value],
    ["/accounts", "nav.accounts", may.own.value],
    ["/operator", "nav.operator", may.operate.value],
  ];
  const { path } = place.value;
  const isAt = (page: string) => (page === "/" ? path === "/" || path.startsWith("/albums") : path.startsWith(page));
  return (
    <nav aria-label={t("nav.label")}>
      <ul>
        {pages
          .filter(([, , isShown]) => isShown)
          .map(([page, words]) => (
            <li key={page}>
              <a href={link(page)} aria-current={isAt(page) && (page !== "/account" || path === page) ? "page" : undefined}>
                {t(words)}
              </a>
            </li>
          ))}
      </ul>
    </nav>
  );
}

function ModeSwitch() {
  const modes = session.value?.modes ?? [];
  if (modes.length < 2) return null;
  return (
    <fieldset class="mode">
      <legend class="visually-hidden">{t("mode.label")}</legend>
      {modes.map((each: Mode) => (
        <label key={each} class={`mode-choice mode-choice-${each}`}>
          <input type="radio" name="mode" checked={mode.value === each} onChange={() => switchMode(each)} />
          <span>{t(`mode.${each}`)}</span>
        </label>
      ))}
    </fieldset>
  );
}

function Person({ onHelp }: { onHelp: () => void }) {
  const who = session.value;
  if (!who) return null;
  const leave = () => signOut().catch(() => notify(t("shell.sign_out_failed")));
  return (
    <div class="person">
      <p class="small quiet">{who.organization.name}</p>
      <a href={link("/account")} aria-current={place.value.path === "/account" ? "page" : undefined}>
        {who.account.name || who.account.email}
      </a>
      <div class="row">
        <Button kind="quiet" onClick={onHelp} aria-label={t("keys_help.title")}>
          ?
        </Button>
        <Button kind="quiet" onClick={() => void leave()}>
          {t("shell.sign_out")}
        </Button>
      </div>
    </div>
  );
}

/** A page with its heading, which takes the focus when one comes from another page. */
export function Page(props: {
  title: string;
  /** What the page belongs to. */
  above?: ComponentChildren;
  actions?: ComponentChildren;
  /** Whether something in the page takes the focus instead. */
  keepsFocus?: boolean;
  children: ComponentChildren;
}) {
  const { title, above, actions, keepsFocus = false, children } = props;
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${title} – Photofinish`;
  }, [title, language.value]);
  useEffect(() => {
    // The key for the search may have led here, and into its field.
    const isSearching = document.activeElement?.matches("[data-search]");
    if (navigations.value > 0 && !keepsFocus && !isSearching) heading.current?.focus({ preventScroll: true });
  }, []);
  return (
    <div class="page">
      {above}
      <div class="row row-apart page-head">
        <h1 ref={heading} tabIndex={-1}>
          {title}
        </h1>
        {actions && <div class="row">{actions}</div>}
      </div>
      {children}
    </div>
  );
}

/** Says of what is live that it is not at the moment. */
export function ConnectionLost({ isAway }: { isAway: boolean }) {
  return (
    <p class="away" role="status" hidden={!isAway}>
      {t("ui.connection_lost")}
    </p>
  );
}

/** The page of addresses that lead nowhere. */
export function NotFound() {
  return (
    <Page title={t("not_found.title")}>
      <Empty title={t("not_found.text")}>
        <a href={link("/")}>{t("not_found.back")}</a>
      </Empty>
    </Page>
  );
}

function Keys({ onClose }: { onClose: () => void }) {
  const keys: [string, Key][] = [
    ["/", "keys_help.search"],
    ["?", "keys_help.help"],
    ["j", "keys_help.next"],
    ["k", "keys_help.previous"],
    ["b", "keys_help.boxes"],
    ["x", "keys_help.choose"],
    ["← ↑ ↓ →", "keys_help.grid"],
    ["Esc", "keys_help.close"],
  ];
  return (
    <Dialog title={t("keys_help.title")} onClose={onClose}>
      <dl class="keys">
        {keys.map(([key, words]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{t(words)}</dd>
          </div>
        ))}
      </dl>
    </Dialog>
  );
}

/** Whether a key press belongs to a field or an open dialog. */
export function isTyping(event: KeyboardEvent): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey) return true;
  const target = event.target as Element | null;
  return target?.closest?.("input:not([type=checkbox], [type=radio]), textarea, select, dialog") != null;
}

function useKeys(onHelp: () => void): void {
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (isTyping(event)) return;
      if (event.key === "?") onHelp();
      if (event.key === "/") {
        event.preventDefault();
        focusSearch();
      }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

/** How long a page may take to show its search: milliseconds between two looks, and how many there are. */
const SEARCH_RETRY_MS = 50;
const SEARCH_TRIES = 100;

/** Goes to the search of the album, or to that of albums, and into its field. */
function focusSearch(): void {
  const field = () => document.querySelector<HTMLInputElement>("[data-search]");
  if (!field()) {
    const album = match("/albums/:album", place.value.path.split("/").slice(0, 3).join("/"));
    navigate(album ? `/albums/${album["album"]}/search` : "/");
  }
  const { path } = place.value;
  const enter = (tries: number) => {
    if (place.value.path !== path) return;
    const found = field();
    if (found) found.focus();
    else if (tries > 0) setTimeout(() => enter(tries - 1), SEARCH_RETRY_MS);
  };
  // The page of the field is drawn after this turn, and may have to load its album first.
  setTimeout(() => enter(SEARCH_TRIES), SEARCH_RETRY_MS);
}
