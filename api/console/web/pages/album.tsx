/** An album: what all its pages have in common, and which page of it is shown. */

import { call } from "../calls";
import { useLoad } from "../common/load";
import { onDemand } from "../common/on-demand";
import { ErrorState, Loading } from "../common/ui/states";
import { may } from "../session";
import { NotFound, Page } from "../shell";
import { t } from "../text";
import { ORGANIZERS_ONLY, type Section } from "./album-frame";
import { FailuresPage } from "./failures";
import { OverviewPage } from "./overview";
import { PhotoPage } from "./photo";
import { PhotosPage } from "./photos";
import { SearchPage } from "./search";

const rare = () => import("./album-settings");
const CostsPage = onDemand(async () => (await rare()).CostsPage);
const ErasuresPage = onDemand(async () => (await rare()).ErasuresPage);
const GalleryPage = onDemand(async () => (await rare()).GalleryPage);
const SettingsPage = onDemand(async () => (await rare()).SettingsPage);

/** A page of an album. */
export function AlbumSection({ albumId, section, photoId }: { albumId: string; section: Section; photoId?: string }) {
  // Again for each of its pages: a colleague may have changed it since.
  const load = useLoad((signal) => call("albums/get", { albumId }, signal), [albumId, section]);
  const album = load.value.value;
  const isPermitted = may.organize.value || !ORGANIZERS_ONLY.includes(section);
  if (!isPermitted) return <NotFound />;
  if (!album || album.id !== albumId) {
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
