/** How the bibs of an event look. */

import type { AlbumConfig, AlbumConfigChange, AlbumDetail } from "../../api";
import { useEdits } from "../../common/edits";
import { formatShare } from "../../common/format";
import { useAction } from "../../common/load";
import { Field } from "../../common/ui/field";
import { t } from "../../text";
import { More, type Save, SettingsForm } from "./form";

/** The panel of the format. */
export function BibForm({ config, learned, save }: { config: AlbumConfig; learned: AlbumDetail["bibFormat"]; save: Save }) {
  const form = useEdits({ format: config.bibFormat, pattern: config.bibPattern });
  const action = useAction(() =>
    form.save(({ format, pattern }) => {
      const change: AlbumConfigChange = {};
      if (format !== undefined) change.bibFormat = format.trim() || "auto";
      // An empty field means what it was: there is always a pattern.
      if (pattern?.trim()) change.bibPattern = pattern.trim();
      return save({ config: change });
    }),
  );
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
        value={form.shown.format}
        onInput={(format) => form.set({ format })}
      />
      <More>
        <Field
          label={t("settings.pattern")}
          hint={t("settings.pattern_hint")}
          spellcheck={false}
          autoComplete="off"
          value={form.shown.pattern}
          onInput={(pattern) => form.set({ pattern })}
        />
      </More>
    </SettingsForm>
  );
}
