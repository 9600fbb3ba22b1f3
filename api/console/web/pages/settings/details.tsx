/** What an album is called and shown by. */

import { useSignal } from "@preact/signals";

import type { AlbumDetail } from "../../api";
import { useAction } from "../../common/load";
import { AreaField, Field } from "../../common/ui/field";
import { t } from "../../text";
import { More, type Save, SettingsForm } from "./form";

/** The panel of the title, the cover and the tags. */
export function DetailsForm({ album, save }: { album: AlbumDetail; save: Save }) {
  const title = useSignal(album.title);
  const cover = useSignal(album.coverUrl ?? "");
  // A line each: a tag may have any other sign in it.
  const tags = useSignal(album.tags.join("\n"));
  const action = useAction(() => {
    const lines = tags.value.split("\n").map((tag) => tag.trim());
    return save({ title: title.value.trim(), coverUrl: cover.value.trim() || null, tags: lines.filter(Boolean) });
  });
  return (
    <SettingsForm title={t("album.title")} action={action}>
      <Field label={t("field.title")} maxLength={500} value={title.value} onInput={(value) => (title.value = value)} />
      <More>
        <Field
          label={t("settings.cover")}
          hint={t("settings.cover_hint")}
          type="url"
          placeholder="https://"
          value={cover.value}
          onInput={(value) => (cover.value = value)}
        />
        <AreaField
          label={t("settings.tags")}
          hint={t("settings.tags_hint")}
          value={tags.value}
          onInput={(value) => (tags.value = value)}
        />
      </More>
    </SettingsForm>
  );
}
