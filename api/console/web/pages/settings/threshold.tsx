/** A threshold beside what it lets through: hits of a search just above it and just below it. */

import { useSignal } from "@preact/signals";
import { useId } from "preact/hooks";

import { call } from "../../calls";
import { formatConfidence } from "../../common/format";
import { useAction } from "../../common/load";
import { Button } from "../../common/ui/button";
import { Field, FileField } from "../../common/ui/field";
import { Failed } from "../../common/ui/states";
import { t, tCount } from "../../text";
import { HitList, uploadSelfie } from "../search";
import type { Hit } from "../../types";

/** Hits of the sample search; those near any threshold are among them. */
const SAMPLE = 1000;
/** Hits shown on each side. */
const SHOWN = 4;

/** A slider with samples. */
export function ThresholdField(props: {
  kind: "face" | "text";
  albumId: string;
  threshold: number;
  saved: number;
  onChange: (threshold: number) => void;
}) {
  const { kind, albumId, threshold, saved, onChange } = props;
  const id = useId();
  const hits = useSignal<Hit[] | undefined>(undefined);
  const sample = useAction(async (input: string | File) => {
    const page = { albumId, limit: SAMPLE, minConfidence: 0 };
    const found =
      typeof input === "string"
        ? await call("photos/search/text/list", { ...page, text: input })
        : await call("photos/search/face/list", { ...page, imageId: await uploadSelfie(albumId, input) });
    hits.value = found.photos.toSorted((a, b) => b.confidence - a.confidence);
  });
  return (
    <div class="threshold">
      <div class="field">
        <label for={id}>{t("settings.threshold")}</label>
        <div class="threshold-slider">
          <input
            id={id}
            type="range"
            min={0}
            max={100}
            step={1}
            value={threshold}
            aria-describedby={`${id}-hint`}
            onInput={(event) => onChange(Number(event.currentTarget.value))}
          />
          <output for={id} class="numeric">
            {formatConfidence(threshold)}
          </output>
        </div>
        <p class="hint" id={`${id}-hint`}>
          {t(`settings.threshold_${kind}`)}
          {threshold !== saved && ` ${t("settings.threshold_now", { threshold: formatConfidence(saved) })}`}
        </p>
      </div>
      <SampleSearch kind={kind} isBusy={sample.isBusy.value} onSample={(input) => void sample.run(input)} />
      <Failed failure={sample.failure.value} />
      {hits.value && <Sides albumId={albumId} hits={hits.value} threshold={threshold} />}
    </div>
  );
}

function SampleSearch(props: { kind: "face" | "text"; isBusy: boolean; onSample: (input: string | File) => void }) {
  const { kind, isBusy, onSample } = props;
  const bib = useSignal("");
  if (kind === "face") {
    return (
      <FileField
        label={t("settings.sample_face")}
        hint={t("settings.sample_hint")}
        accept="image/jpeg,image/png,image/webp"
        onFiles={([selfie]) => {
          if (selfie) onSample(selfie);
        }}
      />
    );
  }
  const search = () => bib.value.trim() && onSample(bib.value.trim());
  return (
    <div class="sample">
      <Field
        label={t("settings.sample_text")}
        hint={t("settings.sample_hint")}
        autoComplete="off"
        maxLength={100}
        value={bib.value}
        onInput={(value) => (bib.value = value)}
        onKeyDown={(event) => {
          if (event.key !== "Enter") return;
          // Enter would save the whole panel.
          event.preventDefault();
          search();
        }}
      />
      <Button busy={isBusy} onClick={search}>
        {t("settings.sample_action")}
      </Button>
    </div>
  );
}

function Sides({ albumId, hits, threshold }: { albumId: string; hits: Hit[]; threshold: number }) {
  const above = hits.filter((hit) => hit.confidence >= threshold);
  const below = hits.filter((hit) => hit.confidence < threshold);
  const sides = [
    { name: "above", title: tCount("settings.above", above.length), hits: above.slice(-SHOWN).reverse() },
    { name: "below", title: tCount("settings.below", below.length), hits: below.slice(0, SHOWN) },
  ];
  return (
    <div class="sides">
      {sides.map((side) => (
        <section key={side.name}>
          <h3 aria-live="polite">{side.title}</h3>
          {side.hits.length === 0 ? (
            <p class="quiet">{t("settings.no_sample")}</p>
          ) : (
            <HitList albumId={albumId} hits={side.hits} small />
          )}
        </section>
      ))}
    </div>
  );
}
