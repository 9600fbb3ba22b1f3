/** The settings of an album. Each panel saves its own part. */

import { useSignal } from "@preact/signals";

import type { AlbumConfig, AlbumDetail, RetentionChange } from "../api";
import { call } from "../calls";
import { useEdits } from "../common/edits";
import { useAction } from "../common/load";
import { navigate } from "../common/router";
import { Button } from "../common/ui/button";
import { FormDialog } from "../common/ui/dialog";
import { Field } from "../common/ui/field";
import { notify } from "../common/ui/notice";
import { t, tCount } from "../text";
import { type AlbumProps, AlbumFrame, ExpiryDates } from "./album-frame";
import { BibForm } from "./settings/bibs";
import { DetailsForm } from "./settings/details";
import { type Save, SettingsForm } from "./settings/form";
import { PicturesForm } from "./settings/pictures";
import { RecognitionForm } from "./settings/recognition";
import { StartListPanel } from "./settings/start-list";

/** The page of the settings. */
export function SettingsPage({ album, load }: AlbumProps) {
  const albumId = album.id;
  const isReprocessing = useSignal(false);
  const { config } = album;
  const save: Save = async (change) => {
    const { reprocessingNeeded, ...saved } = await call("albums/update", { albumId, ...change });
    // Shown at once; what the answer does not have comes with the next load.
    load.value.value = { ...(load.value.value ?? album), ...saved };
    notify(t("settings.saved"));
    load.reload();
    isReprocessing.value = reprocessingNeeded;
  };
  return (
    <AlbumFrame album={album} section="settings">
      <DetailsForm album={album} save={save} />
      {config && (
        <>
          <RecognitionForm kind="text" albumId={albumId} settings={config.text} save={save} />
          <RecognitionForm kind="face" albumId={albumId} settings={config.face} save={save} />
          <BibForm config={config} learned={album.bibFormat} save={save} />
          <StartListPanel albumId={albumId} settings={config.startList} save={save} />
          <PicturesForm config={config} save={save} />
          <RetentionForm config={config} expiring={album.expiring} save={save} />
        </>
      )}
      <ReprocessPanel albumId={albumId} isAsking={isReprocessing} />
      <DeletePanel albumId={albumId} title={album.title} />
    </AlbumFrame>
  );
}

type RetentionProps = { config: AlbumConfig; save: Save } & Pick<AlbumDetail, "expiring">;

function RetentionForm({ config, expiring, save }: RetentionProps) {
  const { photosDays, facesDays } = config.retention;
  const form = useEdits({ photos: String(photosDays ?? ""), faces: String(facesDays ?? "") });
  const days = (text: string) => (text.trim() ? Number(text) : null);
  const action = useAction(() =>
    form.save(({ photos, faces }) => {
      const retention: RetentionChange = {};
      if (photos !== undefined) retention.photosDays = days(photos);
      if (faces !== undefined) retention.facesDays = days(faces);
      return save({ config: { retention } });
    }),
  );
  const limits = { type: "number", min: 1, max: 3650, inputMode: "numeric" } as const;
  return (
    <SettingsForm title={t("settings.retention")} action={action}>
      <div class="quiet">
        <p>{t("settings.retention_hint")}</p>
        <ExpiryDates expiring={expiring} />
      </div>
      <Field
        {...limits}
        label={t("settings.photos_days")}
        value={form.shown.photos}
        onInput={(photos) => form.set({ photos })}
      />
      <Field
        {...limits}
        label={t("settings.faces_days")}
        value={form.shown.faces}
        onInput={(faces) => form.set({ faces })}
      />
    </SettingsForm>
  );
}

function ReprocessPanel({ albumId, isAsking }: { albumId: string; isAsking: { value: boolean } }) {
  const reprocess = useAction(async () => {
    const { queued, declined } = await call("albums/reprocess", { albumId });
    const left = declined > 0 ? ` ${tCount("settings.reprocess_declined", declined)}` : "";
    notify(tCount("settings.reprocessing", queued) + left);
    isAsking.value = false;
    navigate(`/albums/${albumId}`);
  });
  return (
    <section class="panel panel-split" aria-labelledby="reprocess-title">
      <h2 id="reprocess-title">{t("settings.reprocess")}</h2>
      <p class="quiet">{t("settings.reprocess_hint")}</p>
      <div class="row">
        <Button onClick={() => (isAsking.value = true)}>{t("settings.reprocess")}</Button>
      </div>
      {isAsking.value && (
        <FormDialog
          title={t("settings.reprocess")}
          action={t("settings.reprocess_action")}
          does={reprocess}
          onClose={() => (isAsking.value = false)}
        >
          <p>{t("settings.reprocess_text")}</p>
        </FormDialog>
      )}
    </section>
  );
}

function DeletePanel({ albumId, title }: { albumId: string; title: string }) {
  const isAsking = useSignal(false);
  const typed = useSignal("");
  const remove = useAction(async () => {
    const { receipt } = await call("albums/delete", { albumId });
    notify(t("settings.deleted"));
    // The page of the album, where the receipts of others are, is gone with it.
    navigate(`/erasures?receipt=${receipt.receiptId}`);
  });
  return (
    <section class="panel panel-split panel-danger" aria-labelledby="delete-title">
      <h2 id="delete-title">{t("settings.delete")}</h2>
      <p class="quiet">{t("settings.delete_hint")}</p>
      <div class="row">
        <Button kind="danger" onClick={() => (isAsking.value = true)}>
          {t("settings.delete")}
        </Button>
      </div>
      {isAsking.value && (
        <FormDialog
          title={t("settings.delete")}
          action={t("settings.delete_action")}
          kind="danger"
          does={remove}
          disabled={typed.value.trim() !== title.trim()}
          onClose={() => (isAsking.value = false)}
        >
          <p>{t("settings.delete_text", { title })}</p>
          <Field
            label={t("settings.delete_type")}
            autoComplete="off"
            value={typed.value}
            onInput={(value) => (typed.value = value)}
          />
        </FormDialog>
      )}
    </section>
  );
}
