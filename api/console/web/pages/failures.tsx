/** The photos that could not be processed: why, and what to do about it. */

import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";

import type { Photo } from "../api";
import { call } from "../calls";
import type { ApiFailure } from "../common/http";
import { useAction } from "../common/load";
import { link } from "../common/router";
import { Button } from "../common/ui/button";
import { notify } from "../common/ui/notice";
import { Empty, ErrorState, Failed, Loading } from "../common/ui/states";
import { may } from "../session";
import { t, tCount, tName } from "../text";
import { type AlbumProps, AlbumFrame } from "./album-frame";
import { findPhotoList, type PhotoList } from "./photo-list";

/** Reasons that are in the file itself, which stays as it is: trying again does not help. */
const REASONS_OF_FILES: readonly (Photo["failure"])[] = ["UNSUPPORTED_FORMAT", "TOO_MANY_PIXELS", "TOO_LARGE"];

/** Whether it may help to process a photo that has failed again. */
export function mayHelp(photo: Photo): boolean {
  return photo.state === "failed" && !REASONS_OF_FILES.includes(photo.failure);
}

/** Requests at once when all are tried again. */
const AT_ONCE = 4;

/** The page of the failed photos of an album. */
export function FailuresPage({ album }: AlbumProps) {
  const list = useMemo(() => findPhotoList(album.id, { state: "failed" }, true), [album.id]);
  const photos = list.photos.value;
  const isEmpty = photos.length === 0 && !list.hasMore;
  return (
    <AlbumFrame album={album} section="failures">
      {list.isThere.value && !isEmpty && (
        <div class="row row-apart">
          <p aria-live="polite">{tCount("photos.failed_count", list.total.value)}</p>
          {may.organize.value && <RetryAll list={list} albumId={album.id} />}
        </div>
      )}
      {list.failure.value && <ErrorState failure={list.failure.value} onRetry={() => void list.loadMore()} />}
      {!list.isThere.value && !list.failure.value && <Loading lines={3} height="5rem" />}
      {list.isThere.value && isEmpty && <Empty title={t("failures.none")} />}
      <ul class="failures">
        {photos.map((photo) => (
          <Failure key={photo.id} photo={photo} list={list} />
        ))}
      </ul>
      {list.isThere.value && list.hasMore && (
        <div class="row">
          <Button busy={list.isLoading.value} onClick={() => void list.loadMore()}>
            {t("ui.more")}
          </Button>
        </div>
      )}
    </AlbumFrame>
  );
}

function Failure({ photo, list }: { photo: Photo; list: PhotoList }) {
  const { albumId, id: photoId } = photo;
  const retry = useAction(async () => {
    await call("photos/photo/retry", { albumId, photoId });
    notify(t("failures.retried"));
    list.remove(photoId);
  });
  const reason = photo.failure ?? "UNKNOWN";
  return (
    <li class="failure">
      <div class="failure-picture">
        {photo.thumbnailUrl ? <img src={photo.thumbnailUrl} alt="" loading="lazy" /> : t("failures.no_picture")}
      </div>
      <div class="stack stack-tight">
        <h2>
          <a href={link(`/albums/${albumId}/photos/${photoId}?state=failed`)}>{photo.filename}</a>
        </h2>
        <p class="bad">{tName("failure", reason)}</p>
        <p class="quiet">{tName("failure_advice", reason)}</p>
        {may.organize.value && mayHelp(photo) && (
          <div class="row">
            <Button busy={retry.isBusy.value} onClick={() => void retry.run()}>
              {t("failures.retry")}
            </Button>
          </div>
        )}
        <Failed failure={retry.failure.value} />
      </div>
    </li>
  );
}

function RetryAll({ list, albumId }: { list: PhotoList; albumId: string }) {
  const done = useSignal(0);
  const retry = useAction(async () => {
    done.value = 0;
    const retryLoaded = async () => {
      const waiting = [...list.photos.value];
      const work = async () => {
        for (let photo = waiting.shift(); photo; photo = waiting.shift()) {
          await call("photos/photo/retry", { albumId, photoId: photo.id }).catch(ignoreGone);
          list.remove(photo.id);
          done.value += 1;
        }
      };
      await Promise.all(Array.from({ length: AT_ONCE }, work));
    };
    await retryLoaded();
    // Then those that were not loaded, page by page. The page shows a failure to load them.
    while (list.hasMore && !list.failure.value) {
      await list.loadMore();
      await retryLoaded();
    }
    notify(tCount("failures.retried_count", done.value));
  });
  return (
    <div class="stack stack-tight">
      <Button busy={retry.isBusy.value} onClick={() => void retry.run()}>
        {retry.isBusy.value ? t("failures.retrying", { done: done.value }) : t("failures.retry_all")}
      </Button>
      <Failed failure={retry.failure.value} />
    </div>
  );
}

/** A photo that was deleted or tried again meanwhile needs nothing. */
function ignoreGone(failure: ApiFailure): void {
  if (failure.status !== 404 && failure.status !== 409) throw failure;
}
