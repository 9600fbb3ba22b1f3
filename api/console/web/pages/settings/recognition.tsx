/** How faces or bibs are recognised in an album. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import type { Grid, RecognitionSettings } from "../../api";
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
  const isEnabled = useSignal(settings.enabled);
  const mode = useSignal(settings.mode);
  const grid = useSignal<Grid>(settings.grid ?? FIRST_GRID);
  const threshold = useSignal(settings.confidenceThreshold);
  // A colleague may have changed what is loaded again.
  useEffect(() => {
    isEnabled.value = settings.enabled;
    mode.value = settings.mode;
  }, [settings.enabled, settings.mode]);
  useEffect(() => {
    grid.value = settings.grid ?? FIRST_GRID;
  }, [JSON.stringify(settings.grid)]);
  // Switching bibs may change the default that the faces have.
  useEffect(() => {
    threshold.value = settings.confidenceThreshold;
  }, [settings.confidenceThreshold]);
  // Vectors of faces are biometric data: who switches them on says so.
  const isAcknowledged = useSignal(false);
  const needsWord = kind === "face" && isEnabled.value && !settings.enabled;
  const action = useAction(() => {
    // What nobody touched is not sent: a colleague may have changed it meanwhile.
    const change: Partial<RecognitionSettings> = {};
    if (isEnabled.value !== settings.enabled) change.enabled = isEnabled.value;
    if (mode.value !== settings.mode) change.mode = mode.value;
    // A threshold that is sent counts as chosen, and no longer follows the default.
    if (threshold.value !== settings.confidenceThreshold) change.confidenceThreshold = threshold.value;
    const isOtherGrid = JSON.stringify(grid.value) !== JSON.stringify(settings.grid);
    if (mode.value === "grid" && isOtherGrid) change.grid = grid.value;
    const word = needsWord && isAcknowledged.value ? ({ acknowledge: "biometric" } as const) : {};
    return save({ config: { [kind]: change }, ...word });
  });
  return (
    <SettingsForm title={t(`settings.${kind}`)} action={action}>
      <CheckField
        label={t(`settings.${kind}_enabled`)}
        checked={isEnabled.value}
        onChange={(enabled) => (isEnabled.value = enabled)}
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
        value={mode.value}
        options={[
          ["photo", t("settings.mode_photo")],
          ["grid", t("settings.mode_grid")],
        ]}
        onChange={(chosen) => (mode.value = chosen as RecognitionSettings["mode"])}
      />
      {mode.value === "grid" && <GridFields grid={grid} />}
      <ThresholdField kind={kind} albumId={albumId} threshold={threshold} saved={settings.confidenceThreshold} />
    </SettingsForm>
  );
}

function GridFields({ grid }: { grid: { value: Grid } }) {
  const field = (name: keyof Grid, min: number, max: number) => (
    <Field
      label={t(`settings.grid_${name}`)}
      type="number"
      inputMode="numeric"
      min={min}
      max={max}
      value={String(grid.value[name])}
      onInput={(value) => (grid.value = { ...grid.value, [name]: Number(value) })}
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
