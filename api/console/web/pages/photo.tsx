/** One photo with all that was seen on it. */

import { type Signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import type { AlbumDetail, BoundingBox, PhotoDetail, SeenFace, SeenText } from "../api";
import { call } from "../calls";
import { formatConfidence, formatList, formatNumber, formatTime } from "../common/format";
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
import { isTyping, Page } from "../shell";
import { t, tCount, tName } from "../text";
import { findPhotoList } from "./photo-list";
import { filterOfPlace } from "./photo-filter";

/** The colour of each state. */
export const stateKinds = {
  ready: "good",
  processing: "busy",
  queued: "plain",
  awaiting_upload: "plain",
  failed: "bad",
} as const;

interface Neighbours {
  previous: string | null;
  next: string | null;
}

/** The page of a photo. */
export function PhotoPage({ album, photoId }: { album: AlbumDetail; photoId: string }) {
  const albumId = album.id;
  const photo = useLoad((signal) => call("photos/photo/get", { albumId, photoId }, signal), [albumId, photoId]);
  const neighbours = useNeighbours(albumId, photoId);
  const hasBoxes = useSignal(true);
  usePhotoKeys(neighbours, () => (hasBoxes.value = !hasBoxes.value));
  const above = (
    <p class="eyebrow">
      <a href={link(`/albums/${albumId}`)}>{album.title}</a>
      {" / "}
      <a href={link(listPath(albumId))}>{t("album.photos")}</a>
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

function listPath(albumId: string, photoId = ""): string {
  const parts = new URLSearchParams(place.value.query);
  // Of this photo alone.
  parts.delete("face");
  const query = parts.toString();
  return `/albums/${albumId}/photos${photoId && `/${photoId}`}${query && `?${query}`}`;
}

/** The photos before and after, in the list that one came from. */
function useNeighbours(albumId: string, photoId: string): Signal<Neighbours> {
  const neighbours = useSignal<Neighbours>({ previous: null, next: null });
  const filter = filterOfPlace();
  useEffect(() => {
    let isGone = false;
    const list = findPhotoList(albumId, filter);
    const find = async () => {
      const at = await list.find(photoId);
      if (at < 0) return;
      if (at === list.photos.value.length - 1) await list.loadMore();
      const { [at - 1]: before, [at + 1]: after } = list.photos.value;
      const path = (id: string | undefined) => (id ? listPath(albumId, id) : null);
      if (!isGone) neighbours.value = { previous: path(before?.id), next: path(after?.id) };
    };
    void find();
    return () => {
      isGone = true;
    };
  }, [albumId, photoId, JSON.stringify(filter)]);
  return neighbours;
}

function usePhotoKeys(neighbours: Signal<Neighbours>, toggleBoxes: () => void): void {
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (isTyping(event)) return;
      const { previous, next } = neighbours.value;
      if (event.key === "j" && next) navigate(next);
      if (event.key === "k" && previous) navigate(previous);
      if (event.key === "b") toggleBoxes();
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
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
        <div class="row">
          <Tag kind={stateKinds[photo.state]}>{t(`state.${photo.state}`)}</Tag>
          {photo.failure && <span class="bad">{tName("failure", photo.failure)}</span>}
        </div>
        {photo.state === "ready" && (
          <CheckField label={t("photo.boxes")} checked={hasBoxes.value} onChange={(shown) => (hasBoxes.value = shown)} />
        )}
        <SeenList photo={photo} lit={lit} />
        <PhotoFacts photo={photo} />
        {may.organize.value && <PhotoActions photo={photo} onChange={onChange} next={next} />}
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

function Boxes({ photo, lit }: { photo: PhotoDetail; lit: string | null }) {
  const box = (key: string, kind: string, place: BoundingBox, indexed: boolean) => {
    const shape = { x: place.left, y: place.top, width: place.width, height: place.height };
    return (
      <g key={key}>
        <rect class="box-back" {...shape} />
        <rect class={`box box-${kind} ${indexed ? "" : "box-out"} ${lit === key ? "box-lit" : ""}`} {...shape} />
      </g>
    );
  };
  return (
    <svg viewBox="0 0 1 1" preserveAspectRatio="none" aria-hidden="true">
      {photo.faces.map((face, index) => box(`face ${index}`, "face", face.boundingBox, face.indexed))}
      {photo.texts.map((text, index) => box(`text ${index}`, "text", text.boundingBox, text.indexed))}
    </svg>
  );
}

function SeenList({ photo, lit }: { photo: PhotoDetail; lit: Signal<string | null> }) {
  if (photo.state !== "ready") return null;
  const item = (key: string, title: string, seen: SeenFace, note: string) => (
    <li key={key}>
      <button
        type="button"
        onMouseEnter={() => (lit.value = key)}
        onMouseLeave={() => (lit.value = null)}
        onFocus={() => (lit.value = key)}
        onBlur={() => (lit.value = null)}
      >
        <strong>{title}</strong>
        <span class="numeric">{formatConfidence(seen.confidence)}</span>
        <span class="seen-note">{note}</span>
      </button>
    </li>
  );
  return (
    <>
      <section>
        <h2>{tCount("photo.bibs", photo.texts.length)}</h2>
        <ul class="seen">
          {photo.texts.map((text, index) => item(`text ${index}`, text.text, text, describeText(text)))}
        </ul>
      </section>
      <section>
        <h2>{tCount("photo.faces", photo.faces.length)}</h2>
        <ul class="seen">
          {photo.faces.map((face, index) =>
            item(`face ${index}`, t("photo.face", { number: index + 1 }), face, describeSeen(face)),
          )}
        </ul>
      </section>
    </>
  );
}

function describeSeen(seen: SeenFace): string {
  if (seen.reason) return tName("reason", seen.reason);
  return t(seen.indexed ? "reason.indexed" : "reason.not_indexed");
}

function describeText(text: SeenText): string {
  const notes = [describeSeen(text)];
  if (text.readAs && text.readAs !== text.text) notes.push(t("photo.read_as", { text: text.readAs }));
  if (text.onStartList) notes.push(t("photo.on_start_list"));
  const others = text.alternatives.slice(0, 3).map((other) => other.text);
  if (others.length > 0) notes.push(t("photo.or", { texts: formatList(others) }));
  return notes.join(" · ");
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
    const list = findPhotoList(albumId, filterOfPlace());
    navigate(next ?? listPath(albumId));
    list.remove(photoId);
  });
  return (
    <div class="row">
      {photo.state === "failed" && (
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
