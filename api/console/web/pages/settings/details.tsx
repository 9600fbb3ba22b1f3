/** What an album is called and shown by. */

import type { AlbumDetail } from "../../api";
import { useEdits } from "../../common/edits";
import { useAction } from "../../common/load";
import { AreaField, Field } from "../../common/ui/field";
import { t } from "../../text";
import { More, type Save, type SettingsChange, SettingsForm } from "./form";

/** The panel of the title, the cover and the tags. */
export function DetailsForm({ album, save }: { album: AlbumDetail; save: Save }) {
  // Tags have a line each: a tag may have any other sign in it.
  const form = useEdits({ title: album.title, cover: album.coverUrl ?? "", tags: album.tags.join("\n") });
  const action = useAction(() =>
    form.save(({ title, cover, tags }) => {
      const change: SettingsChange = {};
      if (title !== undefined) change.title = title.trim();
      if (cover !== undefined) change.coverUrl = cover.trim() || null;
      if (tags !== undefined) change.tags = tags.split("\n").map((tag) => tag.trim()).filter(Boolean);
      return save(change);
    }),
  );
  return (
    <SettingsForm title={t("album.title")} action={action}>
      <Field label={t("field.title")} maxLength={500} value={form.shown.title} onInput={(title) => form.set({ title })} />
      <More>
        <Field
          label={t("settings.cover")}
          hint={t("settings.cover_hint")}
          type="url"
          placeholder="https://"
          value={form.shown.cover}
          onInput={(cover) => form.set({ cover })}
        />
        <AreaField
          label={t("settings.tags")}
          hint={t("settings.tags_hint")}
          value={form.shown.tags}
          onInput={(tags) => form.set({ tags })}
        />
      </More>
    </SettingsForm>
  );
}
