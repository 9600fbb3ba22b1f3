/** The watermark of an album: its picture, where it is drawn, and how far the marking of photos is. */

import { type Signal, useSignal } from "@preact/signals";
import { useEffect, useId, useRef } from "preact/hooks";

import "./watermark.css";

import type { Watermark, WatermarkPosition, WatermarkSettings } from "../api";
import { call, putBytes } from "../calls";
import { ApiFailure, wait } from "../common/http";
import { useAction, useLoad, useWhile } from "../common/load";
import { Button } from "../common/ui/button";
import { FormDialog } from "../common/ui/dialog";
import { FileField, SelectField } from "../common/ui/field";
import { notify } from "../common/ui/notice";
import { Failed, Loaded } from "../common/ui/states";
import { t, tCount } from "../text";
import { drawMark } from "./watermark-drawing";

const POSITIONS: readonly WatermarkPosition[] = ["tile", "center", "topLeft", "topRight", "bottomLeft", "bottomRight"];
const DEFAULTS: WatermarkSettings = { position: "tile", opacity: 0.35, scale: 0.25 };
/** How often the progress of marking is asked for. */
const POLL_MS = 2000;

/** The panel of the watermark. */
export function WatermarkPanel({ albumId }: { albumId: string }) {
  const load = useLoad((signal) => call("albums/watermark/get", { albumId }, signal), [albumId]);
  const left = load.value.value?.photosLeft ?? 0;
  useWhile(
    (signal) => {
      void (async () => {
        while (left > 0 && !signal.aborted) {
          await wait(POLL_MS, signal);
          if (signal.aborted || document.hidden) continue;
          const now = await call("albums/watermark/get", { albumId }, signal).catch(() => undefined);
          if (now && !signal.aborted) load.value.value = now;
        }
      })();
    },
    [albumId, left > 0],
  );
  return (
    <section class="panel" aria-labelledby="watermark-title">
      <h2 id="watermark-title">{t("watermark.title")}</h2>
      <p class="quiet">{t("watermark.hint")}</p>
      <Loaded load={load} lines={3}>
        {(mark) => <Form mark={mark} onSaved={(saved) => (load.value.value = saved)} />}
      </Loaded>
    </section>
  );
}

function Form({ mark, onSaved }: { mark: Watermark; onSaved: (mark: Watermark) => void }) {
  const { albumId } = mark;
  const form = useSignal<WatermarkSettings>(mark.watermark ?? DEFAULTS);
  const file = useSignal<File | null>(null);
  const isRemoving = useSignal(false);
  const save = useAction(async () => {
    const image = file.value ? { imageId: await uploadPicture(albumId, file.value) } : {};
    onSaved(await call("albums/watermark/set", { albumId, watermark: { ...form.value, ...image } }));
    file.value = null;
    notify(t("settings.saved"));
  });
  const remove = useAction(async () => {
    onSaved(await call("albums/watermark/set", { albumId, watermark: null }));
    isRemoving.value = false;
  });
  const isThere = mark.watermark !== null;
  const isRefused = save.failure.value?.issueOf("watermark") !== undefined;
  return (
    <form
      class="stack"
      onSubmit={(event) => {
        event.preventDefault();
        void save.run();
      }}
    >
      {isThere && (
        <p class="numeric" aria-live="polite">
          {mark.photosLeft > 0 ? tCount("watermark.left", mark.photosLeft) : tCount("watermark.marked", mark.photosMarked)}
        </p>
      )}
      <div class="watermark">
        <Controls form={form} file={file} isThere={isThere} isRefused={isRefused} />
        <Picture albumId={albumId} form={form.value} file={file.value} sampleUrl={mark.sampleUrl} />
      </div>
      {!isRefused && <Failed failure={save.failure.value} />}
      <div class="row">
        <Button kind="main" type="submit" busy={save.isBusy.value} disabled={!isThere && !file.value}>
          {t("ui.save")}
        </Button>
        {isThere && <Button onClick={() => (isRemoving.value = true)}>{t("watermark.remove")}</Button>}
      </div>
      {isRemoving.value && (
        <FormDialog
          title={t("watermark.remove")}
          action={t("watermark.remove")}
          kind="danger"
          does={remove}
          onClose={() => (isRemoving.value = false)}
        >
          <p>{t("watermark.remove_text")}</p>
        </FormDialog>
      )}
    </form>
  );
}

async function uploadPicture(albumId: string, picture: File): Promise<string> {
  const ticket = await call("albums/watermark/signed", { albumId });
  const isTaken = await putBytes(ticket.uploadUrl, picture, "image/png");
  if (!isTaken) throw new ApiFailure(413, "PAYLOAD_TOO_LARGE", "the picture was refused");
  return ticket.imageId;
}

type FormProps = { form: Signal<WatermarkSettings>; file: Signal<File | null>; isThere: boolean; isRefused: boolean };

function Controls({ form, file, isThere, isRefused }: FormProps) {
  const set = (change: Partial<WatermarkSettings>) => (form.value = { ...form.value, ...change });
  return (
    <div class="stack">
      <FileField
        label={t(isThere ? "watermark.replace" : "watermark.choose")}
        hint={file.value?.name ?? t("watermark.file_hint")}
        error={isRefused ? t("watermark.refused") : undefined}
        accept="image/png"
        onFiles={([picture]) => (file.value = picture ?? null)}
      />
      <SelectField
        label={t("watermark.position")}
        value={form.value.position}
        options={POSITIONS.map((position) => [position, t(`watermark.${position}`)] as const)}
        onChange={(value) => set({ position: value as WatermarkPosition })}
      />
      <Slider label={t("watermark.opacity")} min={5} value={form.value.opacity} onInput={(opacity) => set({ opacity })} />
      <Slider label={t("watermark.scale")} min={5} value={form.value.scale} onInput={(scale) => set({ scale })} />
    </div>
  );
}

function Slider(props: { label: string; min: number; value: number; onInput: (value: number) => void }) {
  const id = useId();
  const percent = Math.round(props.value * 100);
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      <div class="watermark-slider">
        <input
          id={id}
          type="range"
          min={props.min}
          max={100}
          value={percent}
          onInput={(event) => props.onInput(Number(event.currentTarget.value) / 100)}
        />
        <output for={id} class="numeric">
          {percent} %
        </output>
      </div>
    </div>
  );
}

type PictureProps = { albumId: string; form: WatermarkSettings; file: File | null; sampleUrl: string | null };

/** A photo with the mark: with a file that was chosen as it will be, else as it is. */
function Picture({ albumId, form, file, sampleUrl }: PictureProps) {
  const first = useLoad(
    async (signal) => (await call("photos/photo/list", { albumId, state: "ready", limit: 1 }, signal)).photos[0]?.url ?? null,
    [albumId],
  );
  const canvas = useRef<HTMLCanvasElement>(null);
  const image = useRef<HTMLImageElement>(null);
  const mark = useSignal<ImageBitmap | null>(null);
  useEffect(() => {
    mark.value = null;
    if (file) void createImageBitmap(file).then((bitmap) => (mark.value = bitmap), () => undefined);
  }, [file]);
  const draw = () => {
    if (canvas.current && image.current) drawMark(canvas.current, image.current, mark.value, form);
  };
  useEffect(draw, [form, mark.value]);
  const url = file || !sampleUrl ? first.value.value : sampleUrl;
  if (!url) return null;
  return (
    <div class="watermark-picture">
      <img ref={image} src={url} alt={t("watermark.sample")} onLoad={draw} />
      {file && <canvas ref={canvas} aria-hidden="true" />}
    </div>
  );
}
