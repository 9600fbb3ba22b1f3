/** The settings of an album. Each panel saves its own part. */

import { useSignal } from "@preact/signals";

import type { AlbumConfig, AlbumConfigChange, AlbumDetail } from "../api";
import { call } from "../calls";
import { formatShare } from "../common/format";
import { useAction } from "../common/load";
import { navigate } from "../common/router";
import { Button } from "../common/ui/button";
import { FormDialog } from "../common/ui/dialog";
import { Field } from "../common/ui/field";
import { notify } from "../common/ui/notice";
import { t, tCount } from "../text";
import { type AlbumProps, AlbumFrame, ExpiryDates } from "./album-frame";
import { type Save, SettingsForm } from "./settings/form";
import { RecognitionForm } from "./settings/recognition";
import { StartListPanel } from "./settings/start-list";

/** The page of the settings. */
export function SettingsPage({ album, load }: AlbumProps) {
  const albumId = album.id;
  const isReprocessing = useSignal(false);
  const { config } = album;
  const save: Save = async (change) => {
    const updated = await call("albums/update", { albumId, ...change });
    notify(t("settings.saved"));
    load.reload();
    isReprocessing.value = updated.reprocessingNeeded;
  };
  return (
    <AlbumFrame album={album} section="settings">
      <TitleForm title={album.title} save={save} />
      {config && (
        <>
          <RecognitionForm kind="text" albumId={albumId} settings={config.text} save={save} />
          <RecognitionForm kind="face" albumId={albumId} settings={config.face} save={save} />
          <BibFormatForm config={config} learned={album.bibFormat} save={save} />
          <StartListPanel albumId={albumId} />
          <RetentionForm config={config} expiring={album.expiring} save={save} />
        </>
      )}
      <ReprocessPanel albumId={albumId} isAsking={isReprocessing} />
      <DeletePanel albumId={albumId} title={album.title} />
    </AlbumFrame>
  );
}

function TitleForm({ title, save }: { title: string; save: Save }) {
  const typed = useSignal(title);
  const action = useAction(() => save({ title: typed.value.trim() }));
  return (
    <SettingsForm title={t("field.title")} action={action}>
      <Field label={t("field.title")} maxLength={500} value={typed.value} onInput={(value) => (typed.value = value)} />
    </SettingsForm>
  );
}

interface Learned {
  learned: string | null;
  readings: number;
  share: number;
}

function BibFormatForm({ config, learned, save }: { config: AlbumConfig; learned: Learned; save: Save }) {
  const format = useSignal(config.bibFormat);
  const action = useAction(() => save({ config: { bibFormat: format.value.trim() || "auto" } }));
  const hint = learned.learned
    ? t("settings.format_learned", { format: learned.learned, share: formatShare(learned.share) })
    : t("settings.format_unlearned", { count: learned.readings });
  return (
    <SettingsForm title={t("settings.format")} action={action}>
      <Field
        label={t("settings.format_label")}
        hint={`${t("settings.format_hint")} ${hint}`}
        spellcheck={false}
        maxLength={110}
        value={format.value}
        onInput={(value) => (format.value = value)}
      />
    </SettingsForm>
  );
}

type RetentionProps = { config: AlbumConfig; save: Save } & Pick<AlbumDetail, "expiring">;

function RetentionForm({ config, expiring, save }: RetentionProps) {
  const photos = useSignal(String(config.retention.photosDays ?? ""));
  const faces = useSignal(String(config.retention.facesDays ?? ""));
  const days = (text: string) => (text.trim() ? Number(text) : null);
  const action = useAction(() => {
    const retention: AlbumConfigChange["retention"] = { photosDays: days(photos.value), facesDays: days(faces.value) };
    return save({ config: { retention } });
  });
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
        value={photos.value}
        onInput={(value) => (photos.value = value)}
      />
      <Field {...limits} label={t("settings.faces_days")} value={faces.value} onInput={(value) => (faces.value = value)} />
    </SettingsForm>
  );
}

function ReprocessPanel({ albumId, isAsking }: { albumId: string; isAsking: { value: boolean } }) {
  const reprocess = useAction(async () => {
    const { queued } = await call("albums/reprocess", { albumId });
    notify(tCount("settings.reprocessing", queued));
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
    await call("albums/delete", { albumId });
    notify(t("settings.deleted"));
    navigate("/");
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
