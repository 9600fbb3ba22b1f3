/** The API keys of the organization. */

import { type Signal, useSignal } from "@preact/signals";

import type { Key as ApiKey, Operations } from "../api";
import { call, mode } from "../calls";
import { formatAgo, formatDay, formatDays, formatNumber } from "../common/format";
import { useAction, useLoad } from "../common/load";
import { Tag } from "../common/ui/bar";
import { Button, CopyText } from "../common/ui/button";
import { Dialog, FormDialog } from "../common/ui/dialog";
import { CheckField, Field, SelectField } from "../common/ui/field";
import { notify } from "../common/ui/notice";
import { Empty, Loaded } from "../common/ui/states";
import { Table } from "../common/ui/table";
import { session } from "../session";
import { Page } from "../shell";
import { t } from "../text";
import type { Mode, Scope } from "../types";

/** What has limits of its own. */
const CLASSES = ["read", "manage", "upload", "search"] as const;

const SCOPES: readonly Scope[] = ["search:read", "photo:upload", "album:manage"];
/** Lives that are offered, days; empty for no end. */
const LIVES = ["", "30", "90", "365"];

/** The page of keys. */
export function KeysPage() {
  const keys = useLoad((signal) => call("keys/list", {}, signal), []);
  const isOpen = useSignal(false);
  const secret = useSignal<string | null>(null);
  const revoking = useSignal<ApiKey | null>(null);
  return (
    <Page
      title={t("nav.keys")}
      actions={
        <Button kind="main" onClick={() => (isOpen.value = true)}>
          {t("keys.new")}
        </Button>
      }
    >
      <p class="quiet">{t("keys.hint")}</p>
      <Loaded load={keys} lines={3} height="2.5rem">
        {(list) =>
          list.keys.length === 0 ? (
            <Empty title={t("keys.none")} />
          ) : (
            <KeyTable keys={list.keys} onRevoke={(key) => (revoking.value = key)} />
          )
        }
      </Loaded>
      {isOpen.value && (
        <NewKey
          onClose={() => (isOpen.value = false)}
          onMade={(made) => {
            isOpen.value = false;
            secret.value = made;
            keys.reload();
          }}
        />
      )}
      {secret.value && (
        <Dialog title={t("keys.made")} onClose={() => (secret.value = null)}>
          <div class="secret">
            <p>{t("keys.once")}</p>
            <CopyText text={secret.value} label={t("keys.key")} />
          </div>
        </Dialog>
      )}
      {revoking.value && (
        <RevokeKey apiKey={revoking.value} onClose={() => (revoking.value = null)} onRevoked={keys.reload} />
      )}
    </Page>
  );
}

function KeyTable({ keys, onRevoke }: { keys: ApiKey[]; onRevoke: (key: ApiKey) => void }) {
  return (
    <Table
      label={t("nav.keys")}
      rows={keys}
      rowKey={(key) => key.id}
      columns={[
        { name: t("field.label"), cell: (key) => key.label || "–" },
        { name: t("keys.key"), cell: (key) => <code>{key.hint}…</code> },
        { name: t("keys.scopes"), cell: (key) => <KeyScopes apiKey={key} /> },
        { name: t("keys.used"), cell: (key) => (key.lastUsedAt ? formatAgo(key.lastUsedAt) : t("keys.never")) },
        { name: t("table.state"), cell: (key) => <KeyState apiKey={key} /> },
        {
          name: "",
          cell: (key) =>
            !key.revokedAt && (
              <Button kind="danger" onClick={() => onRevoke(key)} aria-label={`${t("keys.revoke")}: ${key.label || key.hint}`}>
                {t("keys.revoke")}
              </Button>
            ),
        },
      ]}
    />
  );
}

/** What a key may do, and how much of it where it has limits of its own; 0 is no limit. */
function KeyScopes({ apiKey }: { apiKey: ApiKey }) {
  const limits = CLASSES.flatMap((each) => {
    const limit = apiKey.limits[each];
    if (limit === null) return [];
    return [`${t(`keys.limit_${each}`)} ${limit === 0 ? t("keys.limit_none") : formatNumber(limit)}`];
  });
  return (
    <>
      {apiKey.scopes.map((scope) => t(`scope.${scope}`)).join(", ")}
      {limits.length > 0 && <p class="small quiet">{t("keys.limits_own", { limits: limits.join(", ") })}</p>}
    </>
  );
}

function KeyState({ apiKey }: { apiKey: ApiKey }) {
  const { revokedAt, expiresAt } = apiKey;
  if (revokedAt) return <Tag kind="bad">{t("keys.revoked")}</Tag>;
  if (expiresAt && new Date(expiresAt) < new Date()) return <Tag kind="bad">{t("keys.expired")}</Tag>;
  return (
    <>
      <Tag kind="good">{t("keys.active")}</Tag>
      {expiresAt && <p class="small quiet">{t("keys.until", { day: formatDay(expiresAt) })}</p>}
    </>
  );
}

function NewKey({ onClose, onMade }: { onClose: () => void; onMade: (key: string) => void }) {
  const label = useSignal("");
  const chosen = useSignal<Mode>(mode.value);
  const scopes = useSignal<Scope[]>(["search:read"]);
  const days = useSignal("");
  const limits = useSignal<Partial<Record<(typeof CLASSES)[number], string>>>({});
  const create = useAction(async () => {
    const input: Operations["keys/create"][0] = {
      label: label.value.trim(),
      mode: chosen.value,
      scopes: SCOPES.filter((scope) => scopes.value.includes(scope)),
    };
    if (days.value) input.expiresInDays = Number(days.value);
    const given = CLASSES.filter((each) => limits.value[each]);
    if (given.length > 0) input.limits = Object.fromEntries(given.map((each) => [each, Number(limits.value[each])]));
    onMade((await call("keys/create", input)).key);
  });
  const modes = session.value?.modes ?? [];
  return (
    <FormDialog
      title={t("keys.new")}
      action={t("keys.create")}
      does={create}
      disabled={!label.value.trim() || scopes.value.length === 0}
      onClose={onClose}
    >
      <Field
        label={t("field.label")}
        hint={t("keys.label_hint")}
        maxLength={200}
        value={label.value}
        onInput={(value) => (label.value = value)}
      />
      {modes.length > 1 && (
        <SelectField
          label={t("mode.label")}
          value={chosen.value}
          options={modes.map((each) => [each, t(`mode.${each}`)] as const)}
          onChange={(value) => (chosen.value = value as Mode)}
        />
      )}
      <ScopeFields scopes={scopes} />
      <SelectField
        label={t("keys.life")}
        value={days.value}
        options={LIVES.map((life) => [life, life ? formatDays(Number(life)) : t("keys.no_end")] as const)}
        onChange={(value) => (days.value = value)}
      />
      <details>
        <summary>{t("keys.limits")}</summary>
        <div class="stack">
          <p class="quiet small">{t("keys.limits_hint")}</p>
          {CLASSES.map((each) => (
            <Field
              key={each}
              label={t(`keys.limit_${each}`)}
              type="number"
              inputMode="numeric"
              min={1}
              value={limits.value[each] ?? ""}
              onInput={(value) => (limits.value = { ...limits.value, [each]: value })}
            />
          ))}
        </div>
      </details>
    </FormDialog>
  );
}

function ScopeFields({ scopes }: { scopes: Signal<Scope[]> }) {
  const toggle = (scope: Scope, isOn: boolean) => {
    const others = scopes.value.filter((each) => each !== scope);
    scopes.value = isOn ? [...others, scope] : others;
  };
  return (
    <fieldset class="stack stack-tight">
      <legend>{t("keys.scopes")}</legend>
      {SCOPES.map((scope) => (
        <CheckField
          key={scope}
          label={t(`scope.${scope}`)}
          checked={scopes.value.includes(scope)}
          onChange={(checked) => toggle(scope, checked)}
        />
      ))}
    </fieldset>
  );
}

function RevokeKey({ apiKey, onClose, onRevoked }: { apiKey: ApiKey; onClose: () => void; onRevoked: () => void }) {
  const revoke = useAction(async () => {
    await call("keys/revoke", { keyId: apiKey.id });
    notify(t("keys.revoked_now"));
    onClose();
    onRevoked();
  });
  return (
    <FormDialog title={t("keys.revoke")} action={t("keys.revoke")} kind="danger" does={revoke} onClose={onClose}>
      <p>{t("keys.revoke_text", { label: apiKey.label || apiKey.hint })}</p>
    </FormDialog>
  );
}
