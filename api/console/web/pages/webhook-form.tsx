/** The forms of webhooks: a new one, and one that is changed. */

import { type Signal, useSignal } from "@preact/signals";

import type { Operations, Webhook } from "../api";
import { call } from "../calls";
import { useAction, useLoad } from "../common/load";
import { FormDialog } from "../common/ui/dialog";
import { CheckField, Field, SelectField } from "../common/ui/field";
import { t } from "../text";

/** The events that a webhook can be told of. */
const TYPES = [
  "photo.ready",
  "photo.failed",
  "album.idle",
  "album.deleted",
  "album.expiring",
  "credits.low",
  "person.erased",
] as const;

/** What both forms have. */
interface Told {
  url: string;
  label: string;
  types: string[];
}

/** What the service takes of it. */
function read({ url, label, types }: Told) {
  return { url: url.trim(), label: label.trim(), types: TYPES.filter((type) => types.includes(type)) };
}

/** Whether something is left out that a webhook cannot do without. */
function lacksSomething({ url, types }: Told): boolean {
  return !url.trim() || types.length === 0;
}

function ToldFields({ told }: { told: Signal<Told> }) {
  const set = (change: Partial<Told>) => (told.value = { ...told.value, ...change });
  const { url, label, types } = told.value;
  return (
    <>
      <Field
        label={t("webhooks.url")}
        type="url"
        placeholder="https://"
        value={url}
        onInput={(value) => set({ url: value })}
      />
      <Field label={t("field.label")} maxLength={200} value={label} onInput={(value) => set({ label: value })} />
      <fieldset class="stack stack-tight">
        <legend>{t("webhooks.types")}</legend>
        {TYPES.map((type) => (
          <CheckField
            key={type}
            label={t(`event.${type}`)}
            checked={types.includes(type)}
            onChange={(checked) => set({ types: [...types.filter((each) => each !== type), ...(checked ? [type] : [])] })}
          />
        ))}
      </fieldset>
    </>
  );
}

/** The dialog of a new webhook. */
export function NewWebhook({ onClose, onMade }: { onClose: () => void; onMade: (secret: string) => void }) {
  const told = useSignal<Told>({ url: "", label: "", types: ["photo.ready", "photo.failed", "album.idle"] });
  const albumId = useSignal("");
  const albums = useLoad((signal) => call("albums/list", { limit: 200 }, signal), []);
  const create = useAction(async () => {
    const { label, ...others } = read(told.value);
    const input: Operations["webhooks/create"][0] = others;
    if (label) input.label = label;
    if (albumId.value) input.albumId = albumId.value;
    onMade((await call("webhooks/create", input)).secret);
  });
  const known = albums.value.value?.albums ?? [];
  return (
    <FormDialog
      title={t("webhooks.new")}
      action={t("webhooks.create")}
      does={create}
      disabled={lacksSomething(told.value)}
      onClose={onClose}
    >
      <ToldFields told={told} />
      <SelectField
        label={t("webhooks.album")}
        value={albumId.value}
        options={[["", t("webhooks.all_albums")], ...known.map((album) => [album.id, album.title] as const)]}
        onChange={(value) => (albumId.value = value)}
      />
    </FormDialog>
  );
}

/** The dialog that changes a webhook. Its album and its secret stay. */
export function EditWebhook(props: { webhook: Webhook; onClose: () => void; onSaved: (webhook: Webhook) => void }) {
  const { webhook, onClose, onSaved } = props;
  const { url, label, types } = webhook;
  const told = useSignal<Told>({ url, label, types });
  const save = useAction(async () => {
    onSaved(await call("webhooks/update", { webhookId: webhook.id, ...read(told.value) }));
  });
  return (
    <FormDialog
      title={t("webhooks.edit")}
      action={t("ui.save")}
      does={save}
      disabled={lacksSomething(told.value)}
      onClose={onClose}
    >
      <ToldFields told={told} />
    </FormDialog>
  );
}
