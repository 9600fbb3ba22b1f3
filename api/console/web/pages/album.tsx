/** An album: what all its pages have in common, and which page of it is shown. */

import type { ComponentChildren } from "preact";

import type { AlbumDetail } from "../api";
import { call } from "../calls";
import { type Load, useLoad } from "../common/load";
import { link } from "../common/router";
import { ErrorState, Loading } from "../common/ui/states";
import { may } from "../session";
import { Page } from "../shell";
import { t } from "../text";
import { CostsPage } from "./costs";
import { ErasuresPage } from "./erasures";
import { FailuresPage } from "./failures";
import { GalleryPage } from "./gallery-settings";
import { OverviewPage } from "./overview";
import { PhotoPage } from "./photo";
import { PhotosPage } from "./photos";
import { SearchPage } from "./search";
import { SettingsPage } from "./settings";

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

/** Pages that only change things, which is not for everybody. */
const ORGANIZERS_ONLY: readonly Section[] = ["settings", "gallery"];

/** What the pages of an album get. */
export interface AlbumProps {
  album: AlbumDetail;
  load: Load<AlbumDetail>;
}

/** A page of an album. */
export function AlbumSection({ albumId, section, photoId }: { albumId: string; section: Section; photoId?: string }) {
  const load = useLoad((signal) => call("albums/get", { albumId }, signal), [albumId]);
  const album = load.value.value;
  const isPermitted = may.organize.value || !ORGANIZERS_ONLY.includes(section);
  if (!album || album.id !== albumId || !isPermitted) {
    const failure = load.failure.value;
    return (
      <Page title={t("album.title")}>
        {failure ? <ErrorState failure={failure} onRetry={load.reload} /> : <Loading lines={4} height="3rem" />}
      </Page>
    );
  }
  if (photoId) return <PhotoPage key={photoId} album={album} photoId={photoId} />;
  const pages = {
    overview: OverviewPage,
    photos: PhotosPage,
    failures: FailuresPage,
    search: SearchPage,
    settings: SettingsPage,
    gallery: GalleryPage,
    costs: CostsPage,
    erasures: ErasuresPage,
  } as const;
  const Shown = pages[section];
  return <Shown key={`${albumId} ${section}`} album={album} load={load} />;
}

/** The frame of a page of an album. */
export function AlbumFrame(props: {
  album: AlbumDetail;
  section: Section;
  actions?: ComponentChildren;
  children: ComponentChildren;
}) {
  const { album, section, actions, children } = props;
  const shown = sections.filter((each) => may.organize.value || !ORGANIZERS_ONLY.includes(each));
  const address = (each: Section) => link(`/albums/${album.id}${each === "overview" ? "" : `/${each}`}`);
  const isOverview = section === "overview";
  const above = (
    <p class="eyebrow">
      <a href={isOverview ? link("/") : address("overview")}>{isOverview ? t("nav.albums") : album.title}</a>
    </p>
  );
  return (
    <Page title={isOverview ? album.title : t(`album.${section}`)} above={above} actions={actions}>
      <nav class="tabs" aria-label={t("album.title")}>
        <ul>
          {shown.map((each) => (
            <li key={each}>
              <a href={address(each)} aria-current={each === section ? "page" : undefined}>
                {t(`album.${each}`)}
              </a>
            </li>
          ))}
        </ul>
      </nav>
      {children}
    </Page>
  );
}
