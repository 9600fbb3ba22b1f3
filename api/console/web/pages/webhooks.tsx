/** The webhooks of the organization. */

import { useSignal } from "@preact/signals";

import type { Operations, Webhook } from "../api";
import { call } from "../calls";
import { formatAgo } from "../common/format";
import { useAction, useLoad } from "../common/load";
import { link } from "../common/router";
import { Tag } from "../common/ui/bar";
import { Button, CopyText } from "../common/ui/button";
import { Dialog, FormDialog } from "../common/ui/dialog";
import { CheckField, Field, SelectField } from "../common/ui/field";
import { Empty, Loaded } from "../common/ui/states";
import { Table } from "../common/ui/table";
import { may } from "../session";
import { Page } from "../shell";
import { t, tName } from "../text";

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

/** The page of webhooks. */
export function WebhooksPage() {
  const webhooks = useLoad((signal) => call("webhooks/list", { limit: 200 }, signal), []);
  const isOpen = useSignal(false);
  const secret = useSignal<string | null>(null);
  const create = may.organize.value && (
    <Button kind="main" onClick={() => (isOpen.value = true)}>
      {t("webhooks.new")}
    </Button>
  );
  return (
    <Page title={t("nav.webhooks")} actions={create}>
      <p class="quiet">{t("webhooks.hint")}</p>
      <Loaded load={webhooks} lines={3} height="2.5rem">
        {(page) =>
          page.webhooks.length === 0 ? <Empty title={t("webhooks.none")} /> : <WebhookTable webhooks={page.webhooks} />
        }
      </Loaded>
      {isOpen.value && (
        <NewWebhook
          onClose={() => (isOpen.value = false)}
          onMade={(made) => {
            isOpen.value = false;
            secret.value = made;
            webhooks.reload();
          }}
        />
      )}
      {secret.value && <SecretDialog secret={secret.value} onClose={() => (secret.value = null)} />}
    </Page>
  );
}

/** Shows the secret of a webhook, this once. */
export function SecretDialog({ secret, onClose }: { secret: string; onClose: () => void }) {
  return (
    <Dialog title={t("webhooks.secret")} onClose={onClose}>
      <div class="secret">
        <p>{t("webhooks.once")}</p>
        <CopyText text={secret} label={t("webhooks.secret")} />
      </div>
    </Dialog>
  );
}

/** Whether a webhook is on, and why not. */
export function WebhookState({ webhook }: { webhook: Webhook }) {
  if (webhook.enabled) return <Tag kind="good">{t("webhooks.on")}</Tag>;
  return (
    <>
      <Tag kind="bad">{t("webhooks.off")}</Tag>
      {webhook.disabledReason && <p class="small quiet">{tName("webhook_off", webhook.disabledReason)}</p>}
    </>
  );
}

function WebhookTable({ webhooks }: { webhooks: Webhook[] }) {
  return (
    <Table
      label={t("nav.webhooks")}
      rows={webhooks}
      rowKey={(webhook) => webhook.id}
      columns={[
        {
          name: t("webhooks.url"),
          cell: (webhook) => (
            <>
              <a href={link(`/webhooks/${webhook.id}`)}>{webhook.label || webhook.url}</a>
              {webhook.label && <p class="small quiet">{webhook.url}</p>}
            </>
          ),
        },
        { name: t("webhooks.types"), cell: (webhook) => webhook.types.map((type) => tName("event", type)).join(", ") },
        { name: t("table.state"), cell: (webhook) => <WebhookState webhook={webhook} /> },
        {
          name: t("webhooks.last"),
          cell: (webhook) => (webhook.lastSuccessAt ? formatAgo(webhook.lastSuccessAt) : t("keys.never")),
        },
        { name: t("webhooks.pending"), numeric: true, cell: (webhook) => webhook.pending },
      ]}
    />
  );
}

function NewWebhook({ onClose, onMade }: { onClose: () => void; onMade: (secret: string) => void }) {
  const url = useSignal("");
  const label = useSignal("");
  const albumId = useSignal("");
  const types = useSignal<string[]>(["photo.ready", "photo.failed", "album.idle"]);
  const albums = useLoad((signal) => call("albums/list", { limit: 200 }, signal), []);
  const create = useAction(async () => {
    const input: Operations["webhooks/create"][0] = {
      url: url.value.trim(),
      types: TYPES.filter((type) => types.value.includes(type)),
    };
    if (label.value.trim()) input.label = label.value.trim();
    if (albumId.value) input.albumId = albumId.value;
    onMade((await call("webhooks/create", input)).secret);
  });
  const toggle = (type: string, isOn: boolean) => {
    const others = types.value.filter((each) => each !== type);
    types.value = isOn ? [...others, type] : others;
  };
  const known = albums.value.value?.albums ?? [];
  return (
    <FormDialog
      title={t("webhooks.new")}
      action={t("webhooks.create")}
      does={create}
      disabled={!url.value.trim() || types.value.length === 0}
      onClose={onClose}
    >
      <Field
        label={t("webhooks.url")}
        type="url"
        placeholder="https://"
        value={url.value}
        onInput={(value) => (url.value = value)}
      />
      <Field label={t("field.label")} maxLength={200} value={label.value} onInput={(value) => (label.value = value)} />
      <SelectField
        label={t("webhooks.album")}
        value={albumId.value}
        options={[["", t("webhooks.all_albums")], ...known.map((album) => [album.id, album.title] as const)]}
        onChange={(value) => (albumId.value = value)}
      />
      <fieldset class="stack stack-tight">
        <legend>{t("webhooks.types")}</legend>
        {TYPES.map((type) => (
          <CheckField
            key={type}
            label={t(`event.${type}`)}
            checked={types.value.includes(type)}
            onChange={(checked) => toggle(type, checked)}
          />
        ))}
      </fieldset>
    </FormDialog>
  );
}
