/** Which pictures are made of the photos of an album. */

import { useSignal } from "@preact/signals";

import type { AlbumConfig } from "../../api";
import { useAction } from "../../common/load";
import { CheckField, Field } from "../../common/ui/field";
import { t } from "../../text";
import { More, type Save, SettingsForm } from "./form";

/** The panel of previews and thumbnails. */
export function PicturesForm({ config, save }: { config: AlbumConfig; save: Save }) {
  const isMarked = useSignal(config.preview.watermarked ?? false);
  const preview = useSignal(String(config.preview.maxDimension));
  const thumbnail = useSignal(String(config.thumbnail.maxDimension));
  const action = useAction(() =>
    save({
      config: {
        preview: { maxDimension: Number(preview.value), watermarked: isMarked.value },
        thumbnail: { maxDimension: Number(thumbnail.value) },
      },
    }),
  );
  const limits = { type: "number", min: 64, max: 8192, inputMode: "numeric" } as const;
  return (
    <SettingsForm title={t("settings.pictures")} action={action}>
      <CheckField
        label={t("settings.watermarked")}
        hint={t("settings.watermarked_hint")}
        checked={isMarked.value}
        onChange={(marked) => (isMarked.value = marked)}
      />
      <More>
        <p class="quiet">{t("settings.sides_hint")}</p>
        <Field
          {...limits}
          label={t("settings.preview_side")}
          value={preview.value}
          onInput={(value) => (preview.value = value)}
        />
        <Field
          {...limits}
          label={t("settings.thumbnail_side")}
          value={thumbnail.value}
          onInput={(value) => (thumbnail.value = value)}
        />
      </More>
    </SettingsForm>
  );
}
