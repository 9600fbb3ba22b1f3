/** One photo with all that was seen on it. */

import { type Signal, useSignal } from "@preact/signals";

import type { AlbumDetail, PhotoDetail, SeenFace } from "../api";
import { call } from "../calls";
import { formatNumber, formatTime } from "../common/format";
import { useAction, useLoad } from "../common/load";
import { link, navigate, place } from "../common/router";
import { Tag } from "../common/ui/bar";
import { Button } from "../common/ui/button";
import { FormDialog } from "../common/ui/dialog";
import { type Fact, Facts } from "../common/ui/facts";
import { CheckField } from "../common/ui/field";
import { notify } from "../common/ui/notice";
import { Failed, Loaded } from "../common/ui/states";
import { may } from "../session";
import { Page } from "../shell";
import { t, tName } from "../text";
import { mayHelp } from "./failures";
import { removeFromLists } from "./photo-list";
import { Boxes, SeenList } from "./photo-seen";
import { pathBeside, useNeighbours, usePhotoKeys } from "./photo-walk";
import { findHits, searchOfPlace } from "./search-hits";

/** The colour of each state. */
export const stateKinds = {
  ready: "good",
  processing: "busy",
  queued: "plain",
  awaiting_upload: "plain",
  failed: "bad",
} as const;

/** The page of a photo. */
export function PhotoPage({ album, photoId }: { album: AlbumDetail; photoId: string }) {
  const albumId = album.id;
  const photo = useLoad((signal) => call("photos/photo/get", { albumId, photoId }, signal), [albumId, photoId]);
  const neighbours = useNeighbours(albumId, photoId);
  const hasBoxes = useSignal(true);
  usePhotoKeys(neighbours, () => (hasBoxes.value = !hasBoxes.value));
  const list = searchOfPlace() ? "search" : "photos";
  const above = (
    <p class="eyebrow">
      <a href={link(`/albums/${albumId}`)}>{album.title}</a>
      {" / "}
      <a href={link(pathBeside(albumId, list))}>{t(`album.${list}`)}</a>
    </p>
  );
  const { previous, next } = neighbours.value;
  const steps = (
    <>
      <Button disabled={!previous} onClick={() => previous && navigate(previous)} aria-keyshortcuts="k">
        {t("photo.previous")}
      </Button>
      <Button disabled={!next} onClick={() => next && navigate(next)} aria-keyshortcuts="j">
        {t("photo.next")}
      </Button>
    </>
  );
  return (
    <Page title={photo.value.value?.filename ?? t("photo.title")} above={above} actions={steps}>
      <Loaded load={photo} lines={1} height="60vh">
        {(seen) => <Viewer photo={seen} hasBoxes={hasBoxes} onChange={photo.reload} next={next ?? previous} />}
      </Loaded>
    </Page>
  );
}

function Viewer(props: { photo: PhotoDetail; hasBoxes: Signal<boolean>; onChange: () => void; next: string | null }) {
  const { photo, hasBoxes, onChange, next } = props;
  const lit = useSignal<string | null>(findFaceOfPlace(photo.faces));
  const aspect = photo.width && photo.height ? photo.width / photo.height : 1.5;
  // As wide as fits, and never higher than most of the window.
  const size = { aspectRatio: String(aspect), maxWidth: `calc(82vh * ${aspect.toFixed(4)})` };
  return (
    <div class="viewer">
      <figure class="viewer-picture" style={size}>
        {photo.url && <img src={photo.url} alt={photo.filename} />}
        {hasBoxes.value && <Boxes photo={photo} lit={lit.value} />}
      </figure>
      <div class="stack">
        <div class="row row-apart">
          <div class="row">
            <Tag kind={stateKinds[photo.state]}>{t(`state.${photo.state}`)}</Tag>
            {photo.failure && <span class="bad">{tName("failure", photo.failure)}</span>}
          </div>
          {may.organize.value && <PhotoActions photo={photo} onChange={onChange} next={next} />}
        </div>
        {photo.state === "ready" && (
          <CheckField label={t("photo.boxes")} checked={hasBoxes.value} onChange={(shown) => (hasBoxes.value = shown)} />
        )}
        <SeenList photo={photo} lit={lit} />
        <PhotoFacts photo={photo} />
      </div>
    </div>
  );
}

/** The face at the place that the address names, such as that of a request to be removed. */
function findFaceOfPlace(faces: SeenFace[]): string | null {
  const [left, top, width, height] = (place.value.query.get("face") ?? "").split(",").map(Number);
  if (left === undefined || top === undefined || width === undefined || height === undefined) return null;
  const [x, y] = [left + width / 2, top + height / 2];
  const isThere = ({ boundingBox: box }: SeenFace) =>
    box.left <= x && x <= box.left + box.width && box.top <= y && y <= box.top + box.height;
  const index = faces.findIndex(isThere);
  return index < 0 ? null : `face ${index}`;
}

function PhotoFacts({ photo }: { photo: PhotoDetail }) {
  const size = photo.width && photo.height ? `${formatNumber(photo.width)} × ${formatNumber(photo.height)}` : null;
  const facts: Fact[] = [
    [t("photo.taken"), photo.takenAt && formatTime(photo.takenAt)],
    [t("photo.camera"), photo.camera],
    [t("photo.size"), size],
    [t("photo.added"), formatTime(photo.createdAt)],
    [t("photo.id"), photo.id],
  ];
  return <Facts facts={facts} small />;
}

function PhotoActions({ photo, onChange, next }: { photo: PhotoDetail; onChange: () => void; next: string | null }) {
  const { albumId, id: photoId } = photo;
  const isAsking = useSignal(false);
  const retry = useAction(async () => {
    await call("photos/photo/retry", { albumId, photoId });
    notify(t("failures.retried"));
    onChange();
  });
  const remove = useAction(async () => {
    await call("photos/photo/delete", { albumId, photoId });
    notify(t("photo.deleted"));
    const search = searchOfPlace();
    const hits = findHits(albumId, search);
    navigate(next ?? pathBeside(albumId, search ? "search" : "photos"));
    hits?.remove(photoId);
    removeFromLists(photoId);
  });
  return (
    <div class="row">
      {mayHelp(photo) && (
        <Button busy={retry.isBusy.value} onClick={() => void retry.run()}>
          {t("failures.retry")}
        </Button>
      )}
      <Button kind="danger" onClick={() => (isAsking.value = true)}>
        {t("photo.delete")}
      </Button>
      <Failed failure={retry.failure.value} />
      {isAsking.value && (
        <FormDialog
          title={t("photo.delete_title")}
          action={t("photo.delete")}
          kind="danger"
          does={remove}
          onClose={() => (isAsking.value = false)}
        >
          <p>{t("photo.delete_text", { name: photo.filename })}</p>
        </FormDialog>
      )}
    </div>
  );
}
