/** How faces or bibs are recognised in an album. */

import { useSignal } from "@preact/signals";

import type { Grid, RecognitionChange, RecognitionSettings } from "../../api";
import { useEdits } from "../../common/edits";
import { useAction } from "../../common/load";
import { CheckField, Field, SelectField } from "../../common/ui/field";
import { t } from "../../text";
import { type Save, SettingsForm } from "./form";
import { ThresholdField } from "./threshold";

/** The grid that is offered first: two by three cells at the size the models see well. */
const FIRST_GRID: Grid = { rows: 2, columns: 3, cellWidth: 1280, cellHeight: 1280 };

/** The panel of faces or of bibs. */
export function RecognitionForm(props: {
  kind: "face" | "text";
  albumId: string;
  settings: RecognitionSettings;
  save: Save;
}) {
  const { kind, albumId, settings, save } = props;
  const { confidenceThreshold: saved } = settings;
  const form = useEdits({ enabled: settings.enabled, mode: settings.mode, grid: settings.grid ?? FIRST_GRID, threshold: saved });
  const { enabled, mode, grid, threshold } = form.shown;
  // Vectors of faces are biometric data: who switches them on says so.
  const isAcknowledged = useSignal(false);
  const needsWord = kind === "face" && enabled && !settings.enabled;
  const action = useAction(() =>
    form.save((changed) => {
      const change: RecognitionChange = {};
      if (changed.enabled !== undefined) change.enabled = changed.enabled;
      if (changed.mode !== undefined) change.mode = changed.mode;
      // A threshold that is sent counts as chosen, and no longer follows the default.
      if (changed.threshold !== undefined) change.confidenceThreshold = changed.threshold;
      // The grid that is offered first is not yet the album's.
      if (mode === "grid" && (changed.grid || !settings.grid)) change.grid = grid;
      const word = needsWord && isAcknowledged.value ? ({ acknowledge: "biometric" } as const) : {};
      return save({ config: { [kind]: change }, ...word });
    }),
  );
  return (
    <SettingsForm title={t(`settings.${kind}`)} action={action}>
      <CheckField
        label={t(`settings.${kind}_enabled`)}
        checked={enabled}
        onChange={(isEnabled) => form.set({ enabled: isEnabled })}
      />
      {needsWord && (
        <CheckField
          label={t("settings.face_acknowledge")}
          hint={t("settings.face_acknowledge_hint")}
          checked={isAcknowledged.value}
          onChange={(acknowledged) => (isAcknowledged.value = acknowledged)}
        />
      )}
      <SelectField
        label={t("settings.mode")}
        hint={t("settings.mode_hint")}
        value={mode}
        options={[
          ["photo", t("settings.mode_photo")],
          ["grid", t("settings.mode_grid")],
        ]}
        onChange={(chosen) => form.set({ mode: chosen as RecognitionSettings["mode"] })}
      />
      {mode === "grid" && <GridFields grid={grid} onChange={(changed) => form.set({ grid: changed })} />}
      <ThresholdField
        kind={kind}
        albumId={albumId}
        threshold={threshold}
        saved={saved}
        onChange={(chosen) => form.set({ threshold: chosen })}
      />
    </SettingsForm>
  );
}

function GridFields({ grid, onChange }: { grid: Grid; onChange: (grid: Grid) => void }) {
  const field = (name: keyof Grid, min: number, max: number) => (
    <Field
      label={t(`settings.grid_${name}`)}
      type="number"
      inputMode="numeric"
      min={min}
      max={max}
      value={String(grid[name])}
      onInput={(value) => onChange({ ...grid, [name]: Number(value) })}
    />
  );
  return (
    <div class="grid-fields">
      {field("rows", 1, 16)}
      {field("columns", 1, 16)}
      {field("cellWidth", 64, 8192)}
      {field("cellHeight", 64, 8192)}
    </div>
  );
}
