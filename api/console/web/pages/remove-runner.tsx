/** The removal of a runner by the bib: first what it would take, then the removal itself. */

import { useSignal } from "@preact/signals";

import type { ErasureAnswer } from "../api";
import { call } from "../calls";
import { useAction } from "../common/load";
import { FormDialog } from "../common/ui/dialog";
import { CheckField, Field, SelectField } from "../common/ui/field";
import { notify } from "../common/ui/notice";
import { t, tCount } from "../text";

type Preview = Extract<ErasureAnswer, { confirm: string }>;

/** An erasure in two steps: what it would take, then the erasure itself. A change of what is asked begins again. */
export function useErasure(erase: (how: { dryRun: true } | { confirm: string }) => Promise<ErasureAnswer>, onErased: () => void) {
  const preview = useSignal<Preview | undefined>(undefined);
  const step = useAction(async () => {
    if (preview.value) {
      await erase({ confirm: preview.value.confirm });
      notify(t("remove.done"));
      onErased();
    } else {
      const answer = await erase({ dryRun: true });
      preview.value = "confirm" in answer ? answer : undefined;
    }
  });
  const change = (apply: () => void) => {
    apply();
    preview.value = undefined;
    step.clear();
  };
  return { found: preview.value, step, change };
}

interface RemoveRunnerProps {
  albumId: string;
  /** Whose, as far as it is known. */
  bib?: string;
  onClose: () => void;
  onRemoved: () => void;
}

/** The dialog. Every change of the form asks for a new preview. */
export function RemoveRunner({ albumId, bib: known = "", onClose, onRemoved }: RemoveRunnerProps) {
  const bib = useSignal(known);
  const hasFaces = useSignal(true);
  const photos = useSignal<"keep" | "delete">("keep");
  const request = () => ({ albumId, bib: bib.value.trim(), faces: hasFaces.value, photos: photos.value });
  const { found, step, change } = useErasure((how) => call("people/erase", { ...request(), ...how }), onRemoved);
  const isNothing = found !== undefined && takesNothing(found);
  return (
    <FormDialog
      title={t("erasures.remove")}
      action={t(found ? "remove.confirm" : "remove.preview")}
      kind={found ? "danger" : "main"}
      does={step}
      disabled={!bib.value.trim() || isNothing}
      onClose={onClose}
    >
      <p class="quiet">{t("remove.hint")}</p>
      <Field
        label={t("search.bib")}
        autoComplete="off"
        maxLength={100}
        value={bib.value}
        onInput={(value) => change(() => (bib.value = value))}
      />
      <CheckField
        label={t("remove.faces")}
        hint={t("remove.faces_hint")}
        checked={hasFaces.value}
        onChange={(checked) => change(() => (hasFaces.value = checked))}
      />
      <PhotosField value={photos.value} onChange={(fate) => change(() => (photos.value = fate))} />
      <div aria-live="polite">{found && <p class="away">{isNothing ? t("remove.nothing") : describePreview(found)}</p>}</div>
    </FormDialog>
  );
}

/** What becomes of the photos themselves. */
export function PhotosField({ value, onChange }: { value: "keep" | "delete"; onChange: (fate: "keep" | "delete") => void }) {
  return (
    <SelectField
      label={t("remove.photos")}
      value={value}
      options={[
        ["keep", t("remove.photos_keep")],
        ["delete", t("remove.photos_delete")],
      ]}
      onChange={(chosen) => onChange(chosen as "keep" | "delete")}
    />
  );
}

/** Whether there is nothing to erase. */
export function takesNothing(preview: Preview): boolean {
  return preview.faces + preview.texts + preview.deletedPhotoIds.length === 0;
}

/** What an erasure would take, in words. */
export function describePreview(preview: Preview): string {
  const words = [
    tCount("photo.bibs", preview.texts),
    tCount("photo.faces", preview.faces),
    tCount("remove.in_photos", preview.photoIds.length),
  ];
  if (preview.deletedPhotoIds.length > 0) words.push(tCount("remove.photos_deleted", preview.deletedPhotoIds.length));
  return words.join(" · ");
}
