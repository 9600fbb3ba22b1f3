/** One webhook with its deliveries. */

import { useSignal } from "@preact/signals";

import type { Delivery, DeliveryDetail, Webhook } from "../api";
import { call } from "../calls";
import { formatAgo, formatNumber, formatTime } from "../common/format";
import { type Load, useAction, useLoad, useReloading } from "../common/load";
import { link, navigate } from "../common/router";
import { Tag } from "../common/ui/bar";
import { Button } from "../common/ui/button";
import { Dialog, FormDialog } from "../common/ui/dialog";
import { notify } from "../common/ui/notice";
import { Empty, Failed, Loaded } from "../common/ui/states";
import { Table } from "../common/ui/table";
import { may } from "../session";
import { Page } from "../shell";
import { type Key, t, tName } from "../text";
import { More, useLongList } from "./long-list";
import { EditWebhook } from "./webhook-form";
import { SecretDialog, WebhookState } from "./webhooks";

/** Deliveries at first, and by each press of the button for more. */
const PAGE = 100;
/** How long the secret of before is still used beside a new one, hours. */
const OVERLAP_HOURS = 24;

const stateKinds: Record<string, "good" | "busy" | "bad" | "plain"> = {
  delivered: "good",
  pending: "busy",
  failed: "bad",
};

/** What systems and libraries say of connections that fail, and the words for it. */
const NETWORK_ERRORS: [said: RegExp, words: Key][] = [
  [/refused/i, "delivery_error.refused"],
  [/lookup|resolve|no such name|not known/i, "delivery_error.unknown_host"],
  [/timed out|no answer|unreachable/i, "delivery_error.no_answer"],
  [/certificate|tls|handshake/i, "delivery_error.certificate"],
  [/reset|closed|broken pipe/i, "delivery_error.broken_off"],
  [/not public|not a public/i, "delivery_error.not_public"],
];

/** Why there was no answer, in words where there are some. */
function describeError(error: string): string {
  const words = NETWORK_ERRORS.find(([said]) => said.test(error))?.[1];
  return words ? t(words) : error.replace(/ \(os error \d+\)/, "");
}

/** The page of a webhook. */
export function WebhookPage({ webhookId }: { webhookId: string }) {
  const webhook = useLoad((signal) => call("webhooks/get", { webhookId }, signal), [webhookId]);
  const list = useLongList(
    PAGE,
    (page, signal) => call("webhooks/deliveries/list", { webhookId, ...page }, signal),
    (part) => part.deliveries,
    [webhookId],
  );
  const deliveries = list.load;
  // An attempt also changes what the webhook itself says: its last success, and what waits.
  const reload = () => {
    webhook.reload();
    deliveries.reload();
  };
  const shown = useSignal<string | null>(null);
  const found = webhook.value.value;
  useReloading(deliveries, ({ items }) => items.some((delivery) => delivery.state === "pending"), reload);
  const above = (
    <p class="eyebrow">
      <a href={link("/webhooks")}>{t("nav.webhooks")}</a>
    </p>
  );
  return (
    <Page title={found ? found.label || found.url : t("webhooks.one")} above={above}>
      <Loaded load={webhook} lines={3}>
        {(seen) => <Facts webhook={seen} load={webhook} onTest={reload} />}
      </Loaded>
      <section class="stack" aria-labelledby="deliveries-title">
        <div class="row row-apart">
          <h2 id="deliveries-title">{t("deliveries.title")}</h2>
          <Button busy={deliveries.isLoading.value} onClick={reload}>
            {t("ui.reload")}
          </Button>
        </div>
        <Loaded load={deliveries} lines={4} height="2.5rem">
          {(page) =>
            page.items.length === 0 ? (
              <Empty title={t("deliveries.none")} />
            ) : (
              <>
                <DeliveryTable deliveries={page.items} onShow={(id) => (shown.value = id)} />
                <More list={list} />
              </>
            )
          }
        </Loaded>
      </section>
      {shown.value && (
        <DeliveryDialog
          webhookId={webhookId}
          deliveryId={shown.value}
          onClose={() => (shown.value = null)}
          onSent={reload}
        />
      )}
    </Page>
  );
}

function Facts({ webhook, load, onTest }: { webhook: Webhook; load: Load<Webhook>; onTest: () => void }) {
  return (
    <section class="panel" aria-label={t("webhooks.one")}>
      <dl class="facts">
        <dt>{t("webhooks.url")}</dt>
        <dd>{webhook.url}</dd>
        <dt>{t("table.state")}</dt>
        <dd>
          <WebhookState webhook={webhook} />
        </dd>
        <dt>{t("webhooks.types")}</dt>
        <dd>{webhook.types.map((type) => tName("event", type)).join(", ")}</dd>
        <dt>{t("webhooks.last")}</dt>
        <dd>{webhook.lastSuccessAt ? formatTime(webhook.lastSuccessAt) : t("keys.never")}</dd>
        <dt>{t("webhooks.pending")}</dt>
        <dd>{formatNumber(webhook.pending)}</dd>
      </dl>
      {may.organize.value && <WebhookActions webhook={webhook} load={load} onTest={onTest} />}
    </section>
  );
}

function WebhookActions({ webhook, load, onTest }: { webhook: Webhook; load: Load<Webhook>; onTest: () => void }) {
  const webhookId = webhook.id;
  const secret = useSignal<string | null>(null);
  const isEditing = useSignal(false);
  const isRotating = useSignal(false);
  const isDeleting = useSignal(false);
  const test = useAction(async () => {
    await call("webhooks/test", { webhookId });
    notify(t("webhooks.tested"));
    onTest();
  });
  const toggle = useAction(async () => {
    load.value.value = await call("webhooks/update", { webhookId, enabled: !webhook.enabled });
    // What waits is given up when it is switched off.
    onTest();
  });
  const remove = useAction(async () => {
    await call("webhooks/delete", { webhookId });
    notify(t("webhooks.deleted"));
    navigate("/webhooks");
  });
  return (
    <>
      <div class="row">
        <Button busy={test.isBusy.value} onClick={() => void test.run()}>
          {t("webhooks.test")}
        </Button>
        <Button onClick={() => (isEditing.value = true)}>{t("webhooks.edit")}</Button>
        <Button busy={toggle.isBusy.value} onClick={() => void toggle.run()}>
          {t(webhook.enabled ? "webhooks.switch_off" : "webhooks.switch_on")}
        </Button>
        <Button onClick={() => (isRotating.value = true)}>{t("webhooks.rotate")}</Button>
        <Button kind="danger" onClick={() => (isDeleting.value = true)}>
          {t("webhooks.delete")}
        </Button>
      </div>
      <Failed failure={test.failure.value ?? toggle.failure.value} />
      {isRotating.value && (
        <RotateSecret
          webhookId={webhookId}
          onClose={() => (isRotating.value = false)}
          onRotated={(made) => {
            isRotating.value = false;
            secret.value = made;
          }}
        />
      )}
      {secret.value && <SecretDialog secret={secret.value} onClose={() => (secret.value = null)} />}
      {isEditing.value && (
        <EditWebhook
          webhook={webhook}
          onClose={() => (isEditing.value = false)}
          onSaved={(saved) => {
            load.value.value = saved;
            isEditing.value = false;
            notify(t("settings.saved"));
          }}
        />
      )}
      {isDeleting.value && (
        <FormDialog
          title={t("webhooks.delete")}
          action={t("webhooks.delete")}
          kind="danger"
          does={remove}
          onClose={() => (isDeleting.value = false)}
        >
          <p>{t("webhooks.delete_text")}</p>
        </FormDialog>
      )}
    </>
  );
}

/** Asks first: a second rotation within the hours of the first leaves receivers that have the oldest secret alone. */
function RotateSecret(props: { webhookId: string; onClose: () => void; onRotated: (secret: string) => void }) {
  const { webhookId, onClose, onRotated } = props;
  const rotate = useAction(async () => {
    onRotated((await call("webhooks/rotate", { webhookId, overlapHours: OVERLAP_HOURS })).secret);
  });
  return (
    <FormDialog title={t("webhooks.rotate")} action={t("webhooks.create")} does={rotate} onClose={onClose}>
      <p>{t("webhooks.rotate_text", { hours: OVERLAP_HOURS })}</p>
    </FormDialog>
  );
}

function DeliveryTable({ deliveries, onShow }: { deliveries: Delivery[]; onShow: (id: string) => void }) {
  return (
    <Table
      label={t("deliveries.title")}
      rows={deliveries}
      rowKey={(delivery) => delivery.id}
      columns={[
        { name: t("deliveries.made"), cell: (delivery) => formatTime(delivery.createdAt) },
        { name: t("deliveries.event"), cell: (delivery) => tName("event", delivery.type) },
        {
          name: t("table.state"),
          cell: ({ state }) => <Tag kind={stateKinds[state] ?? "plain"}>{tName("delivery_state", state)}</Tag>,
        },
        {
          name: t("deliveries.answer"),
          cell: ({ lastStatus, lastError }) => lastStatus ?? (lastError ? describeError(lastError) : "–"),
        },
        { name: t("deliveries.attempts"), numeric: true, cell: (delivery) => formatNumber(delivery.attempts) },
        { name: "", cell: (delivery) => <Button onClick={() => onShow(delivery.id)}>{t("ui.show")}</Button> },
      ]}
    />
  );
}

function DeliveryDialog(props: { webhookId: string; deliveryId: string; onClose: () => void; onSent: () => void }) {
  const { webhookId, deliveryId, onClose, onSent } = props;
  const delivery = useLoad((signal) => call("webhooks/deliveries/get", { webhookId, deliveryId }, signal), [deliveryId]);
  // What waits is sent anyway, and cannot be sent twice.
  const isSettled = delivery.value.value !== undefined && delivery.value.value.state !== "pending";
  const redeliver = useAction(async () => {
    await call("webhooks/redeliver", { webhookId, deliveryId });
    notify(t("deliveries.resent"));
    onClose();
    onSent();
  });
  return (
    <Dialog title={t("deliveries.one")} onClose={onClose} wide>
      <div class="stack">
        <Loaded load={delivery} lines={4}>
          {(seen) => <DeliveryFacts delivery={seen} />}
        </Loaded>
        <Failed failure={redeliver.failure.value} />
        {may.organize.value && isSettled && (
          <div class="row row-end">
            <Button kind="main" busy={redeliver.isBusy.value} onClick={() => void redeliver.run()}>
              {t("deliveries.resend")}
            </Button>
          </div>
        )}
      </div>
    </Dialog>
  );
}

function DeliveryFacts({ delivery }: { delivery: DeliveryDetail }) {
  return (
    <>
      <p>
        {tName("event", delivery.type)} · {tName("delivery_state", delivery.state)}
        {delivery.nextAttemptAt && ` · ${t("deliveries.next", { when: formatAgo(delivery.nextAttemptAt) })}`}
      </p>
      <h3>{t("deliveries.body")}</h3>
      <pre class="small" tabIndex={0} aria-label={t("deliveries.body")}>
        {JSON.stringify(delivery.body, null, 2)}
      </pre>
      <h3>{t("deliveries.attempts")}</h3>
      {delivery.history.length === 0 && <p class="quiet">{t("deliveries.no_attempts")}</p>}
      <ol class="stack stack-tight">
        {delivery.history.map((attempt) => (
          <li key={attempt.at}>
            <p>
              {formatTime(attempt.at)} · {attempt.status ?? describeError(attempt.error ?? "")} ·{" "}
              {t("deliveries.took", { ms: formatNumber(attempt.durationMs) })}
            </p>
            {attempt.answer && (
              <pre class="small" tabIndex={0} aria-label={t("deliveries.answer")}>
                {attempt.answer}
              </pre>
            )}
          </li>
        ))}
      </ol>
    </>
  );
}
