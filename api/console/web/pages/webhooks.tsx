/** The webhooks of the organization. */

import { useSignal } from "@preact/signals";

import type { Webhook } from "../api";
import { call } from "../calls";
import { formatAgo } from "../common/format";
import { useLoad } from "../common/load";
import { link } from "../common/router";
import { Tag } from "../common/ui/bar";
import { Button, CopyText } from "../common/ui/button";
import { Dialog } from "../common/ui/dialog";
import { Empty, Loaded } from "../common/ui/states";
import { Table } from "../common/ui/table";
import { may } from "../session";
import { Page } from "../shell";
import { t, tName } from "../text";
import { NewWebhook } from "./webhook-form";

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

/** When the last attempt to tell it something failed; null where it was told since. */
function findFailure({ lastFailureAt, lastSuccessAt }: Webhook): string | null {
  if (!lastFailureAt) return null;
  return lastSuccessAt && new Date(lastSuccessAt) > new Date(lastFailureAt) ? null : lastFailureAt;
}

/** Whether a webhook is on, and why not, or that it fails. */
export function WebhookState({ webhook }: { webhook: Webhook }) {
  const failedAt = findFailure(webhook);
  if (webhook.enabled && failedAt) {
    return (
      <>
        <Tag kind="bad">{t("webhooks.failing")}</Tag>
        <p class="small quiet">{t("webhooks.failed", { when: formatAgo(failedAt) })}</p>
      </>
    );
  }
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
