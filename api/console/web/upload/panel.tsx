/** Where photos are dropped or picked, and how their upload is getting on. */

import { useSignal } from "@preact/signals";

import "./panel.css";

import { formatBytes, formatNumber } from "../common/format";
import { useCalm } from "../common/load";
import { Bar } from "../common/ui/bar";
import { Button } from "../common/ui/button";
import { Field, FileField } from "../common/ui/field";
import { Failed } from "../common/ui/states";
import { session } from "../session";
import { ConnectionLost } from "../shell";
import { type Key, t, tCount, tName } from "../text";
import { findDropped, findPicked, type FoundFiles } from "./files";
import { findUpload, type Upload, type UploadCounts } from "./upload";

/** Refused photos that are listed; the rest is counted. */
const MOST_LISTED = 100;

/** The panel of the upload to an album. */
export function UploadPanel({ albumId }: { albumId: string }) {
  const { mediaTypes = [], maxPhotoBytes = 0 } = session.value ?? {};
  const upload = findUpload(albumId, maxPhotoBytes);
  const isOver = useSignal(false);
  const folder = useSignal("");
  const intake = { mediaTypes, folder: folder.value };
  const add = (found: FoundFiles | Promise<FoundFiles>) => void upload.add(found);
  const drop = (event: DragEvent) => {
    event.preventDefault();
    isOver.value = false;
    if (event.dataTransfer) add(findDropped(event.dataTransfer, intake));
  };
  const accept = mediaTypes.join(",");
  return (
    <section
      class={isOver.value ? "panel drop drop-over" : "panel drop"}
      aria-labelledby="upload-title"
      onDragOver={(event) => {
        event.preventDefault();
        isOver.value = true;
      }}
      onDragLeave={() => (isOver.value = false)}
      onDrop={drop}
    >
      <h2 id="upload-title">{t("upload.title")}</h2>
      <div class="row">
        <FileField
          label={t("upload.folder")}
          kind="main"
          folder
          multiple
          accept={accept}
          onFiles={(files) => add(findPicked(files, intake))}
        />
        <FileField
          label={t("upload.files")}
          multiple
          accept={accept}
          onFiles={(files) => add(findPicked(files, intake))}
        />
        <p class="quiet small grow">{t("upload.hint", { size: formatBytes(maxPhotoBytes) })}</p>
      </div>
      <details>
        <summary>{t("upload.into")}</summary>
        <Field
          label={t("upload.into_name")}
          hint={t("upload.into_hint")}
          maxLength={100}
          value={folder.value}
          onInput={(value) => (folder.value = value)}
        />
      </details>
      {upload.state.value !== "idle" && <UploadStatus upload={upload} />}
    </section>
  );
}

function UploadStatus({ upload }: { upload: Upload }) {
  const state = upload.state.value;
  const counts = upload.counts.value;
  const spoken = useCalm(upload.counts).value;
  return (
    <div class="stack">
      <div class="row row-apart">
        <p class="numeric">{describe(upload)}</p>
        <div class="row">
          {state === "running" && <Button onClick={() => upload.pause()}>{t("upload.pause")}</Button>}
          {state === "paused" && (
            <Button kind="main" onClick={() => void upload.resume()}>
              {t("upload.resume")}
            </Button>
          )}
          {upload.isActive.value && <Button onClick={() => upload.cancel()}>{t("upload.cancel")}</Button>}
        </div>
      </div>
      <Bar
        total={counts.found}
        parts={[
          { kind: "ready", amount: counts.sent + counts.skipped },
          { kind: "failed", amount: counts.failed + counts.tooLarge },
        ]}
      />
      <ConnectionLost isAway={upload.isAway.value} />
      <Failed failure={upload.failure.value} />
      {state === "finished" && <Summary counts={counts} />}
      <Refused upload={upload} />
      <p class="visually-hidden" aria-live="polite">
        {t("upload.spoken", { done: spoken.found - spoken.left, total: spoken.found })}
      </p>
    </div>
  );
}

function describe(upload: Upload): string {
  const { found, left } = upload.counts.value;
  if (upload.state.value === "listing") return t("upload.listing");
  if (upload.state.value === "finished") return t(left > 0 ? "upload.stopped" : "upload.finished");
  const values = {
    done: formatNumber(found - left),
    total: formatNumber(found),
    sent: formatBytes(upload.bytesSent.value),
    size: formatBytes(upload.bytesFound.value),
  };
  return t(upload.state.value === "paused" ? "upload.paused" : "upload.running", values);
}

/** All photos that were found, by what became of them: the rows add up to the last one. */
function Summary({ counts }: { counts: UploadCounts }) {
  const rows: [Key, number][] = [
    ["upload.sum_sent", counts.sent],
    ["upload.sum_skipped", counts.skipped],
    ["upload.sum_too_large", counts.tooLarge],
    ["upload.sum_failed", counts.failed],
    ["upload.sum_left", counts.left],
  ];
  return (
    <>
      <dl class="sum numeric">
        {rows.map(([words, amount]) => (
          <div key={words}>
            <dt>{t(words)}</dt>
            <dd>{formatNumber(amount)}</dd>
          </div>
        ))}
        <div class="sum-total">
          <dt>{t("upload.sum_found")}</dt>
          <dd>{formatNumber(counts.found)}</dd>
        </div>
      </dl>
      {counts.others > 0 && <p class="small quiet">{tCount("upload.others", counts.others)}</p>}
      {counts.unreadable > 0 && <p class="failed">{tCount("upload.unreadable", counts.unreadable)}</p>}
    </>
  );
}

function Refused({ upload }: { upload: Upload }) {
  const refused = upload.refused.value;
  if (refused.length === 0) return null;
  return (
    <details>
      <summary>{tCount("upload.refused", refused.length)}</summary>
      <ul class="small">
        {refused.slice(0, MOST_LISTED).map(({ name, reason }) => (
          <li key={name}>
            <code>{name}</code> <span class="quiet">{tName("upload_reason", reason)}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}
