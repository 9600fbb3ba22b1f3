/** How the bibs of an event look. */

import { useSignal } from "@preact/signals";

import type { AlbumConfig, AlbumDetail } from "../../api";
import { formatShare } from "../../common/format";
import { useAction } from "../../common/load";
import { Field } from "../../common/ui/field";
import { t } from "../../text";
import { More, type Save, SettingsForm } from "./form";

/** The panel of the format. */
export function BibForm({ config, learned, save }: { config: AlbumConfig; learned: AlbumDetail["bibFormat"]; save: Save }) {
  const format = useSignal(config.bibFormat);
  const pattern = useSignal(config.bibPattern);
  const action = useAction(() => {
    // An empty field means what it was: there is always a pattern.
    const bibPattern = pattern.value.trim() || config.bibPattern;
    return save({ config: { bibFormat: format.value.trim() || "auto", bibPattern } });
  });
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
      <More>
        <Field
          label={t("settings.pattern")}
          hint={t("settings.pattern_hint")}
          spellcheck={false}
          autoComplete="off"
          value={pattern.value}
          onInput={(value) => (pattern.value = value)}
        />
      </More>
    </SettingsForm>
  );
}
