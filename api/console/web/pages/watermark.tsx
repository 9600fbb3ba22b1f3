/** The watermark of an album: its picture, where it is drawn, and how far the marking of photos is. */

import { type ReadonlySignal, type Signal, useSignal } from "@preact/signals";
import { useEffect, useId, useRef } from "preact/hooks";

import type { Watermark, WatermarkSettings } from "../api";
import { call } from "../calls";
import { formatShare } from "../common/format";
import { ApiFailure, putBytes, wait } from "../common/http";
import { useAction, useLoad, useWhile } from "../common/load";
import { Button } from "../common/ui/button";
import { FormDialog } from "../common/ui/dialog";
import { FileField, SelectField } from "../common/ui/field";
import { notify } from "../common/ui/notice";
import { Failed, Loaded } from "../common/ui/states";
import { t, tCount } from "../text";
import type { WatermarkPosition } from "../types";
import { drawMark } from "./watermark-drawing";

const POSITIONS: readonly WatermarkPosition[] = ["tile", "center", "topLeft", "topRight", "bottomLeft", "bottomRight"];
const DEFAULTS: WatermarkSettings = { position: "tile", opacity: 0.35, scale: 0.25 };
/** What the service takes: bytes, and pixels a side. */
const MOST_BYTES = 1 << 20;
const LONGEST_SIDE = 2000;
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
  // Another form after a removal: the settings of before are gone with the mark.
  const removals = useSignal(0);
  const onRemoved = (now: Watermark) => {
    load.value.value = now;
    removals.value += 1;
  };
  return (
    <section class="panel panel-split" aria-labelledby="watermark-title">
      <h2 id="watermark-title">{t("watermark.title")}</h2>
      <p class="quiet">{t("watermark.hint")}</p>
      <Loaded load={load} lines={3}>
        {(mark) => (
          <>
            <Form key={removals.value} mark={mark} onSaved={(saved) => (load.value.value = saved)} />
            {mark.watermark && <RemoveMark albumId={albumId} onRemoved={onRemoved} />}
          </>
        )}
      </Loaded>
    </section>
  );
}

function RemoveMark({ albumId, onRemoved }: { albumId: string; onRemoved: (now: Watermark) => void }) {
  const isAsking = useSignal(false);
  const remove = useAction(async () => {
    onRemoved(await call("albums/watermark/set", { albumId, watermark: null }));
    notify(t("watermark.removed"));
  });
  return (
    <div class="row">
      <Button onClick={() => (isAsking.value = true)}>{t("watermark.remove")}</Button>
      {isAsking.value && (
        <FormDialog
          title={t("watermark.remove")}
          action={t("watermark.remove")}
          kind="danger"
          does={remove}
          onClose={() => (isAsking.value = false)}
        >
          <p>{t("watermark.remove_text")}</p>
        </FormDialog>
      )}
    </div>
  );
}

function Form({ mark, onSaved }: { mark: Watermark; onSaved: (mark: Watermark) => void }) {
  const { albumId } = mark;
  const form = useSignal<WatermarkSettings>(mark.watermark ?? DEFAULTS);
  const picture = usePicture();
  const uploaded = useSignal<File | null>(null);
  const save = useAction(async () => {
    const file = picture.file.value;
    if (picture.isRefused.value) return;
    const image = file && file !== uploaded.value ? { imageId: await uploadPicture(albumId, file) } : {};
    onSaved(await call("albums/watermark/set", { albumId, watermark: { ...form.value, ...image } }));
    // The file stays, so that what is changed next is drawn at once too.
    uploaded.value = file;
    notify(t("settings.saved"));
  });
  const isThere = mark.watermark !== null;
  const isRefused = picture.isRefused.value || save.failure.value?.issueOf("watermark") !== undefined;
  // Without its file, which only the service has, a changed mark cannot be drawn here.
  const isStale = isThere && !picture.bitmap.value && !isSame(form.value, mark.watermark);
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
        <Controls form={form} picture={picture} isThere={isThere} isRefused={isRefused} />
        <div class="stack stack-tight">
          <Sample albumId={albumId} form={form.value} bitmap={picture.bitmap.value} sampleUrl={mark.sampleUrl} />
          <p class="hint" aria-live="polite">
            {isStale && t("watermark.stale")}
          </p>
        </div>
      </div>
      {!isRefused && <Failed failure={save.failure.value} />}
      <div class="row">
        <Button kind="main" type="submit" busy={save.isBusy.value} disabled={!isThere && !picture.file.value}>
          {t("ui.save")}
        </Button>
      </div>
    </form>
  );
}

function isSame(a: WatermarkSettings, b: WatermarkSettings | null): boolean {
  return b !== null && a.position === b.position && a.opacity === b.opacity && a.scale === b.scale;
}

/** A picture that is to be drawn on photos. */
interface MarkPicture {
  file: ReadonlySignal<File | null>;
  /** The picture itself, as soon as it is read. */
  bitmap: ReadonlySignal<ImageBitmap | null>;
  /** Whether the service would not take it. */
  isRefused: ReadonlySignal<boolean>;
  choose: (file: File | null) => void;
}

function usePicture(): MarkPicture {
  const file = useSignal<File | null>(null);
  const bitmap = useSignal<ImageBitmap | null>(null);
  const isRefused = useSignal(false);
  const choose = (chosen: File | null) => {
    file.value = chosen;
    bitmap.value = null;
    isRefused.value = false;
    if (!chosen) return;
    const isTooLong = (side: number) => side > LONGEST_SIDE;
    readPicture(chosen).then((read) => {
      if (file.value !== chosen) return;
      bitmap.value = read;
      isRefused.value = read === null || isTooLong(read.width) || isTooLong(read.height);
    });
  };
  return { file, bitmap, isRefused, choose };
}

/** The picture in a file, or null where the file is too large or no picture. */
async function readPicture(file: File): Promise<ImageBitmap | null> {
  if (file.size > MOST_BYTES || file.type !== "image/png") return null;
  return createImageBitmap(file).catch(() => null);
}

async function uploadPicture(albumId: string, picture: File): Promise<string> {
  const ticket = await call("albums/watermark/signed", { albumId });
  const isTaken = await putBytes(ticket.uploadUrl, picture, "image/png");
  if (!isTaken) throw new ApiFailure(413, "PAYLOAD_TOO_LARGE", "the picture was refused");
  return ticket.imageId;
}

type FormProps = { form: Signal<WatermarkSettings>; picture: MarkPicture; isThere: boolean; isRefused: boolean };

function Controls({ form, picture, isThere, isRefused }: FormProps) {
  const set = (change: Partial<WatermarkSettings>) => (form.value = { ...form.value, ...change });
  return (
    <div class="stack">
      <FileField
        label={t(isThere ? "watermark.replace" : "watermark.choose")}
        hint={isRefused || !picture.file.value ? t("watermark.file_hint") : picture.file.value.name}
        error={isRefused ? t("watermark.refused") : undefined}
        accept="image/png"
        onFiles={([file]) => picture.choose(file ?? null)}
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
          {formatShare(props.value)}
        </output>
      </div>
    </div>
  );
}

type SampleProps = { albumId: string; form: WatermarkSettings; bitmap: ImageBitmap | null; sampleUrl: string | null };

/** A photo with the mark: with a picture that was chosen as it will be, else as it is. */
function Sample({ albumId, form, bitmap, sampleUrl }: SampleProps) {
  const first = useLoad(
    async (signal) => (await call("photos/photo/list", { albumId, state: "ready", limit: 1 }, signal)).photos[0]?.url ?? null,
    [albumId],
  );
  const canvas = useRef<HTMLCanvasElement>(null);
  const image = useRef<HTMLImageElement>(null);
  const draw = () => {
    if (canvas.current && image.current) drawMark(canvas.current, image.current, bitmap, form);
  };
  useEffect(draw, [form, bitmap]);
  const url = bitmap || !sampleUrl ? first.value.value : sampleUrl;
  if (url === undefined) return <div class="skeleton watermark-empty" />;
  if (url === null) return <p class="watermark-empty quiet">{t("watermark.no_photo")}</p>;
  return (
    <div class="watermark-picture">
      <img ref={image} src={url} alt={t("watermark.sample")} onLoad={draw} />
      {bitmap && <canvas ref={canvas} aria-hidden="true" />}
    </div>
  );
}
