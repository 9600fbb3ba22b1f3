/** What the pages of an album have in common. */

import type { ComponentChildren } from "preact";

import type { AlbumDetail } from "../api";
import { formatTime } from "../common/format";
import type { Load } from "../common/load";
import { link } from "../common/router";
import { may } from "../session";
import { Page } from "../shell";
import { t } from "../text";

/** The pages of an album. */
export const sections = [
  "overview",
  "photos",
  "failures",
  "search",
  "settings",
  "gallery",
  "costs",
  "erasures",
] as const;

/** A page of an album. */
export type Section = (typeof sections)[number];

/** Pages that change things, or show what viewers may not see. */
export const ORGANIZERS_ONLY: readonly Section[] = ["settings", "gallery", "costs", "erasures"];

/** What the pages of an album get. */
export interface AlbumProps {
  album: AlbumDetail;
  load: Load<AlbumDetail>;
}

/** Scrolls the tabs, not the page, to the one that is shown. */
function showCurrent(list: HTMLUListElement | null): void {
  const current = list?.querySelector<HTMLElement>("[aria-current]");
  if (list && current) list.scrollLeft = current.offsetLeft - (list.clientWidth - current.offsetWidth) / 2;
}

/** How long before something is erased by its age the pages of its album say so, milliseconds. */
const NOTICE = 7 * 86_400_000;

/** Says what of an album is erased within a week. */
function ExpiryBanner({ album }: { album: AlbumDetail }) {
  const soon = album.expiring.filter(({ at }) => new Date(at).getTime() < Date.now() + NOTICE);
  if (soon.length === 0) return null;
  return (
    <div class="expiring">
      <ExpiryDates expiring={soon} />
      {may.organize.value && <a href={link(`/albums/${album.id}/settings`)}>{t("settings.retention")}</a>}
    </div>
  );
}

/** When what of an album is erased by its age. */
export function ExpiryDates({ expiring }: Pick<AlbumDetail, "expiring">) {
  return expiring.map(({ what, at }) => <p key={what}>{t(`album.expiring_${what}`, { time: formatTime(at) })}</p>);
}

/** The frame of a page of an album. */
export function AlbumFrame(props: {
  album: AlbumDetail;
  section: Section;
  actions?: ComponentChildren;
  keepsFocus?: boolean;
  children: ComponentChildren;
}) {
  const { album, section, actions, keepsFocus = false, children } = props;
  const shown = sections.filter((each) => may.organize.value || !ORGANIZERS_ONLY.includes(each));
  const address = (each: Section) => link(`/albums/${album.id}${each === "overview" ? "" : `/${each}`}`);
  const isOverview = section === "overview";
  const above = (
    <p class="eyebrow">
      <a href={isOverview ? link("/") : address("overview")}>{isOverview ? t("nav.albums") : album.title}</a>
    </p>
  );
  return (
    <Page title={isOverview ? album.title : t(`album.${section}`)} above={above} actions={actions} keepsFocus={keepsFocus}>
      <nav class="tabs" aria-label={t("album.title")}>
        <ul ref={showCurrent}>
          {shown.map((each) => (
            <li key={each}>
              <a href={address(each)} aria-current={each === section ? "page" : undefined}>
                {t(`album.${each}`)}
              </a>
            </li>
          ))}
        </ul>
      </nav>
      <ExpiryBanner album={album} />
      {children}
    </Page>
  );
}
