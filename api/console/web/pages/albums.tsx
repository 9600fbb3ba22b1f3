/** All albums, newest first, each with how far it is. */

import { type ReadonlySignal, useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";

import "./albums.css";

import type { Album, Progress } from "../api";
import { call } from "../calls";
import { formatDay, formatDuration, formatNumber } from "../common/format";
import { useAction, useLoad, useWhileSeen } from "../common/load";
import { link, navigate, place, setQuery } from "../common/router";
import { Bar } from "../common/ui/bar";
import { Button } from "../common/ui/button";
import { FormDialog } from "../common/ui/dialog";
import { Field } from "../common/ui/field";
import { Empty, Loaded } from "../common/ui/states";
import { may } from "../session";
import { ConnectionLost, Page } from "../shell";
import { t, tCount } from "../text";
import { AlbumsProgress } from "./albums-progress";
import { More, useLongList } from "./long-list";

/** Albums at first, and by each press of the button for more. */
const PAGE = 24;

/** The page of all albums. */
export function AlbumsPage() {
  const title = place.value.query.get("title") ?? "";
  const isOpen = useSignal(false);
  const query = title ? { title } : {};
  const albums = useLongList(
    PAGE,
    (page, signal) => call("albums/list", { ...query, ...page }, signal),
    (part) => part.albums,
    [title],
  );
  const live = useMemo(() => new AlbumsProgress(), []);
  useWhileSeen((signal) => void live.follow(signal), []);
  const create = may.organize.value && (
    <Button kind="main" onClick={() => (isOpen.value = true)}>
      {t("albums.new")}
    </Button>
  );
  return (
    <Page title={t("nav.albums")} actions={create}>
      <ConnectionLost isAway={live.isAway.value} />
      <TitleSearch title={title} />
      <Loaded load={albums.load} lines={3} height="9rem">
        {(page) =>
          page.items.length === 0 ? (
            <Empty title={t(title ? "albums.none_found" : "albums.none")}>
              {!title && may.organize.value && <p class="quiet">{t("albums.none_hint")}</p>}
            </Empty>
          ) : (
            <>
              <p class="visually-hidden" aria-live="polite">
                {tCount("albums.count", page.total)}
              </p>
              <ul class="albums">
                {page.items.map((album) => (
                  <AlbumCard key={album.id} album={album} progress={live.of(album.id)} />
                ))}
              </ul>
              <More list={albums} />
            </>
          )
        }
      </Loaded>
      {isOpen.value && <NewAlbum onClose={() => (isOpen.value = false)} />}
    </Page>
  );
}

function TitleSearch({ title }: { title: string }) {
  const typed = useSignal(title);
  useEffect(() => {
    if (typed.value === title) return;
    // Letters that follow each other soon make one search.
    const timer = setTimeout(() => setQuery("title", typed.value.trim()), 250);
    return () => clearTimeout(timer);
  }, [typed.value]);
  return (
    <search class="form">
      <Field
        label={t("albums.search")}
        type="search"
        data-search
        value={typed.value}
        onInput={(value) => (typed.value = value)}
      />
    </search>
  );
}

function AlbumCard({ album, progress }: { album: Album; progress: ReadonlySignal<Progress | undefined> }) {
  const cover = useLoad(
    async (signal) => {
      const page = await call("photos/photo/list", { albumId: album.id, state: "ready", limit: 1 }, signal);
      return chooseCover(album, page.photos[0]?.thumbnailUrl ?? null);
    },
    [album.id],
  );
  return (
    <li class="album">
      <div class="album-cover">
        {cover.value.value && <img src={cover.value.value} alt="" loading="lazy" />}
        {cover.value.value === null && <NoCover />}
      </div>
      <div class="stack stack-tight">
        <h2>
          <a href={link(`/albums/${album.id}`)}>{album.title}</a>
        </h2>
        <p class="small quiet">{formatDay(album.createdAt)}</p>
        {progress.value ? <AlbumProgress progress={progress.value} /> : <div class="skeleton album-skeleton" />}
      </div>
    </li>
  );
}

/** Drawn where an album has no photo yet. */
function NoCover() {
  return (
    <svg viewBox="0 0 24 24" aria-hidden="true">
      <path d="M4 6h16v12H4zM4 15l4.5-4.5 4 4 2.5-2.5 5 5M15.5 9.5h.01" />
    </svg>
  );
}

/** The policy of the page shows only pictures of the storage, so other covers give way to the first photo. */
function chooseCover(album: Album, first: string | null): string | null {
  if (!first || !album.coverUrl) return first;
  return new URL(album.coverUrl).origin === new URL(first, location.href).origin ? album.coverUrl : first;
}

function AlbumProgress({ progress }: { progress: Progress }) {
  const { total, ready, processing, queued, failed, photosPerSecond, secondsLeft } = progress;
  const words = [tCount("photos.count", total)];
  if (failed > 0) words.push(tCount("photos.failed_count", failed));
  if (photosPerSecond) words.push(t("progress.rate", { rate: formatNumber(photosPerSecond, 1) }));
  if (secondsLeft) words.push(t("progress.left", { time: formatDuration(secondsLeft) }));
  return (
    <>
      <Bar
        total={total}
        parts={[
          { kind: "ready", amount: ready },
          { kind: "failed", amount: failed },
          { kind: "processing", amount: processing },
          { kind: "queued", amount: queued },
        ]}
      />
      <p class="small quiet numeric">{words.join(" · ")}</p>
    </>
  );
}

function NewAlbum({ onClose }: { onClose: () => void }) {
  const title = useSignal("");
  const create = useAction(async () => {
    const album = await call("albums/create", { title: title.value.trim() });
    navigate(`/albums/${album.id}`);
  });
  return (
    <FormDialog
      title={t("albums.new")}
      action={t("albums.create")}
      does={create}
      disabled={!title.value.trim()}
      onClose={onClose}
    >
      <Field
        label={t("field.title")}
        hint={t("albums.title_hint")}
        maxLength={500}
        value={title.value}
        onInput={(value) => (title.value = value)}
      />
    </FormDialog>
  );
}
