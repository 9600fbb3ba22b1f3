/** An album at a glance: what is uploaded, how far it is, and what the pipeline does. */

import { type Signal, useSignal } from "@preact/signals";

import type { PipelineOverview, Progress } from "../api";
import { follow } from "../calls";
import { formatDuration, formatNumber } from "../common/format";
import { type ApiFailure, toApiFailure, wait } from "../common/http";
import { useCalm, useWhileSeen } from "../common/load";
import { link } from "../common/router";
import { Bar } from "../common/ui/bar";
import { ErrorState, Loading } from "../common/ui/states";
import { may } from "../session";
import { ConnectionLost } from "../shell";
import { t, tCount, tName } from "../text";
import { UploadPanel } from "../upload/panel";
import { findUpload } from "../upload/upload";
import { type AlbumProps, AlbumFrame } from "./album-frame";
import { StageGraph } from "./stages";

/** How soon after its end the progress is followed again while the pipeline is at work, milliseconds. */
const AGAIN_MS = 3000;

/** The first page of an album. */
export function OverviewPage({ album }: AlbumProps) {
  const pipeline = useSignal<PipelineOverview | undefined>(undefined);
  const isAway = useSignal(false);
  const failure = useSignal<ApiFailure | undefined>(undefined);
  useWhileSeen((signal) => {
    const onMessage = (message: PipelineOverview) => (pipeline.value = message);
    const onConnection = (connected: boolean) => (isAway.value = !connected);
    // Who may not see the pipeline sees the counts alone.
    follow("pipeline/get", {}, { signal, onMessage, onConnection }).catch(() => undefined);
  }, []);
  const progress = useLiveProgress(album.id, pipeline, failure);
  // An idle pipeline is held up by nothing, though one of its stages is always the busiest.
  const inFlight = countInFlight(pipeline.value);
  return (
    <AlbumFrame album={album} section="overview">
      <ConnectionLost isAway={isAway.value} />
      {progress.value ? (
        <Counts albumId={album.id} progress={progress as Signal<Progress>} />
      ) : failure.value ? (
        <ErrorState failure={failure.value} />
      ) : (
        <Loading lines={2} height="4rem" />
      )}
      {may.organize.value && <UploadPanel albumId={album.id} />}
      {pipeline.value && pipeline.value.stages.length > 0 && (
        <StageGraph
          stages={pipeline.value.stages}
          bottleneck={inFlight > 0 ? pipeline.value.bottleneck : null}
          isIdle={inFlight === 0}
        />
      )}
    </AlbumFrame>
  );
}

function countInFlight(pipeline: PipelineOverview | undefined): number {
  return pipeline?.processes.reduce((sum, process) => sum + process.photosInFlight, 0) ?? 0;
}

/**
 * Follows the progress. Its stream ends when the album is idle; the pipeline, or what is uploaded here, says when there may be
 * something to follow again.
 */
function useLiveProgress(albumId: string, pipeline: Signal<PipelineOverview | undefined>, failure: Signal<ApiFailure | undefined>) {
  const progress = useSignal<Progress | undefined>(undefined);
  const isIdle = useSignal(false);
  const inFlight = countInFlight(pipeline.value);
  const confirmed = findUpload(albumId).counts.value.sent;
  // While idle, each change of these restarts the stream; else it goes on.
  const nudge = useSignal(0);
  const seen = useSignal("");
  const now = `${inFlight > 0} ${confirmed}`;
  if (seen.value !== now) {
    seen.value = now;
    if (isIdle.peek()) nudge.value += 1;
  }
  useWhileSeen(
    (signal) => {
      const onMessage = (message: Progress) => (progress.value = message);
      const followOn = async () => {
        do {
          isIdle.value = false;
          await follow("albums/progress", { albumId }, { signal, onMessage });
          if (signal.aborted) return;
          isIdle.value = true;
          await wait(AGAIN_MS, signal);
          // What the pipeline reads may be of other albums for hours, and some of this one among it.
        } while (!signal.aborted && countInFlight(pipeline.peek()) > 0);
      };
      followOn().catch((error: unknown) => (failure.value = toApiFailure(error)));
    },
    [albumId, nudge.value],
  );
  return progress;
}

function Counts({ albumId, progress }: { albumId: string; progress: Signal<Progress> }) {
  const { total, ready, failed, queued, processing, awaitingUpload, photosPerSecond, secondsLeft } = progress.value;
  const spoken = useCalm(progress).value;
  const figures: [string, number][] = [
    [t("state.ready"), ready],
    [t("state.processing"), processing],
    [t("state.queued"), queued],
    [t("state.failed"), failed],
  ];
  // Only where an upload has begun and not ended.
  if (awaitingUpload > 0) figures.push([t("state.awaiting_upload"), awaitingUpload]);
  return (
    <section class="panel" aria-label={t("overview.counts")}>
      <dl class="figures">
        {figures.map(([name, amount]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{formatNumber(amount)}</dd>
          </div>
        ))}
      </dl>
      <Bar
        total={total}
        parts={[
          { kind: "ready", amount: ready },
          { kind: "failed", amount: failed },
          { kind: "processing", amount: processing },
          { kind: "queued", amount: queued },
        ]}
      />
      <p class="quiet numeric">
        {describe(progress.value, photosPerSecond, secondsLeft)}
        {failed > 0 && (
          <>
            {" "}
            <a href={link(`/albums/${albumId}/failures`)}>{tCount("photos.failed_count", failed)}</a>
          </>
        )}
      </p>
      <p class="visually-hidden" aria-live="polite">
        {t("overview.spoken", { ready: spoken.ready, total: spoken.total })}
      </p>
    </section>
  );
}

function describe({ total, queued, processing, bottleneck }: Progress, rate: number | null, left: number | null): string {
  if (total === 0) return t("overview.empty");
  if (queued + processing === 0) return t("overview.idle", { count: formatNumber(total) });
  const words = [tCount("photos.count", total)];
  if (rate) words.push(t("progress.rate", { rate: formatNumber(rate, 1) }));
  if (left) words.push(t("progress.left", { time: formatDuration(left) }));
  if (bottleneck) words.push(t("stages.limited_by", { stage: tName("stage", bottleneck) }));
  return words.join(" · ");
}
