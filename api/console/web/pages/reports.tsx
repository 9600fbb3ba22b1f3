/** What visitors said of photos: wrong ones, and requests to be removed, which are granted or dismissed here. */

import { useSignal } from "@preact/signals";

import type { BoundingBox, GalleryReport } from "../api";
import { call } from "../calls";
import { formatTime } from "../common/format";
import { useAction, useLoad } from "../common/load";
import { link } from "../common/router";
import { Button } from "../common/ui/button";
import { FormDialog } from "../common/ui/dialog";
import { notify } from "../common/ui/notice";
import { Failed, Loaded } from "../common/ui/states";
import { may } from "../session";
import { t, tName } from "../text";
import { describePreview, PhotosField, RemoveRunner, takesNothing, useErasure } from "./remove-runner";

/** The panel of the reports. */
export function Reports({ albumId }: { albumId: string }) {
  const load = useLoad((signal) => call("albums/gallery/reports", { albumId }, signal), [albumId]);
  return (
    <section class="panel panel-split" aria-labelledby="reports-title">
      <h2 id="reports-title">{t("gallery.reports")}</h2>
      <Loaded load={load} lines={2}>
        {({ reports }) =>
          reports.length === 0 ? (
            <p class="quiet">{t("gallery.no_reports")}</p>
          ) : (
            <>
              {reports.some((report) => report.faces.length > 0) && <p class="quiet">{t("gallery.report_removal_hint")}</p>}
              <ul class="stack">
                {groupReports(reports).map((group) => (
                  <Said key={group[0].id} albumId={albumId} group={group} onDone={load.reload} />
                ))}
              </ul>
            </>
          )
        }
      </Loaded>
    </section>
  );
}

/** What was said of one photo, or of all photos of a request. */
type Group = [GalleryReport, ...GalleryReport[]];

function isRequest(report: GalleryReport): boolean {
  return report.kind === "removal";
}

/** The photos of a request to be removed together: they were reported at one time. */
function groupReports(reports: GalleryReport[]): Group[] {
  const groups = new Map<string, Group>();
  for (const report of reports) {
    const key = isRequest(report) ? report.createdAt : report.id;
    const group = groups.get(key);
    if (group) group.push(report);
    else groups.set(key, [report]);
  }
  return [...groups.values()];
}

function Said({ albumId, group, onDone }: { albumId: string; group: Group; onDone: () => void }) {
  const [first] = group;
  const isErasing = useSignal(false);
  const endErasing = () => {
    isErasing.value = false;
    onDone();
  };
  const dismiss = useAction(async () => {
    await call("albums/gallery/reports/dismiss", { albumId, reportId: first.id });
    notify(t("gallery.report_dismissed"));
    onDone();
  });
  const photo = (report: GalleryReport) => `/albums/${albumId}/photos/${report.photoId}${faceQuery(report.faces)}`;
  return (
    <li class="stack stack-tight">
      <p>
        <strong>{tName("gallery", `report_${first.kind}`)}</strong> <span class="quiet small">{formatTime(first.createdAt)}</span>
      </p>
      {first.note && <p>{first.note}</p>}
      {first.bib && <p>{t("gallery.report_bib", { bib: first.bib })}</p>}
      <ul class="row">
        {group.map((report, index) => (
          <li key={report.id}>
            <a href={link(photo(report))}>{t("gallery.report_photo", { number: index + 1 })}</a>
          </li>
        ))}
      </ul>
      <div class="row">
        {(first.faces.length > 0 || first.bib) && may.own.value && (
          <Button kind="danger" onClick={() => (isErasing.value = true)}>
            {t(first.bib ? "erasures.remove" : "gallery.report_erase")}
          </Button>
        )}
        <Button busy={dismiss.isBusy.value} onClick={() => void dismiss.run()}>
          {t("gallery.report_dismiss")}
        </Button>
        <Failed failure={dismiss.failure.value} />
      </div>
      {isErasing.value &&
        (first.bib ? (
          <RemoveRunner albumId={albumId} bib={first.bib} onClose={() => (isErasing.value = false)} onRemoved={endErasing} />
        ) : (
          <EraseDialog albumId={albumId} reportId={first.id} onClose={() => (isErasing.value = false)} onDone={onDone} />
        ))}
    </li>
  );
}

/** Has the photo's page show whose faces these are. */
function faceQuery(faces: BoundingBox[]): string {
  const [face] = faces;
  return face ? `?face=${[face.left, face.top, face.width, face.height].join(",")}` : "";
}

function EraseDialog(props: { albumId: string; reportId: string; onClose: () => void; onDone: () => void }) {
  const { albumId, reportId, onClose, onDone } = props;
  const photos = useSignal<"keep" | "delete">("keep");
  const { found, step, change } = useErasure(
    (how) => call("albums/gallery/reports/erase", { albumId, reportId, photos: photos.value, ...how }),
    onDone,
  );
  return (
    <FormDialog
      title={t("gallery.report_erase")}
      action={t(found ? "remove.confirm" : "remove.preview")}
      kind={found ? "danger" : "main"}
      does={step}
      disabled={found && takesNothing(found)}
      onClose={onClose}
    >
      <p class="quiet">{t("gallery.report_erase_hint")}</p>
      <PhotosField value={photos.value} onChange={(fate) => change(() => (photos.value = fate))} />
      <div aria-live="polite">
        {found && <p class="away">{takesNothing(found) ? t("gallery.report_gone") : describePreview(found)}</p>}
      </div>
    </FormDialog>
  );
}
