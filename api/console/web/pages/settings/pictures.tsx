/** Which pictures are made of the photos of an album. */

import type { AlbumConfig, AlbumConfigChange } from "../../api";
import { useEdits } from "../../common/edits";
import { useAction } from "../../common/load";
import { CheckField, Field } from "../../common/ui/field";
import { t } from "../../text";
import { More, type Save, SettingsForm } from "./form";

/** The panel of previews and thumbnails. */
export function PicturesForm({ config, save }: { config: AlbumConfig; save: Save }) {
  const form = useEdits({
    watermarked: config.preview.watermarked ?? false,
    preview: String(config.preview.maxDimension),
    thumbnail: String(config.thumbnail.maxDimension),
  });
  const action = useAction(() =>
    form.save(({ watermarked, preview, thumbnail }) => {
      const change: Required<Pick<AlbumConfigChange, "preview" | "thumbnail">> = { preview: {}, thumbnail: {} };
      if (watermarked !== undefined) change.preview.watermarked = watermarked;
      if (preview !== undefined) change.preview.maxDimension = Number(preview);
      if (thumbnail !== undefined) change.thumbnail.maxDimension = Number(thumbnail);
      return save({ config: change });
    }),
  );
  const limits = { type: "number", min: 64, max: 8192, inputMode: "numeric" } as const;
  return (
    <SettingsForm title={t("settings.pictures")} action={action}>
      <CheckField
        label={t("settings.watermarked")}
        hint={t("settings.watermarked_hint")}
        checked={form.shown.watermarked}
        onChange={(watermarked) => form.set({ watermarked })}
      />
      <More>
        <p class="quiet">{t("settings.sides_hint")}</p>
        <Field
          {...limits}
          label={t("settings.preview_side")}
          value={form.shown.preview}
          onInput={(preview) => form.set({ preview })}
        />
        <Field
          {...limits}
          label={t("settings.thumbnail_side")}
          value={form.shown.thumbnail}
          onInput={(thumbnail) => form.set({ thumbnail })}
        />
      </More>
    </SettingsForm>
  );
}
