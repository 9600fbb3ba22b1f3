/** The people of the organization. */

import { useSignal } from "@preact/signals";

import type { Account, InvitedAccount } from "../api";
import { call } from "../calls";
import { formatAgo, formatTime } from "../common/format";
import { useAction, useLoad } from "../common/load";
import { Tag } from "../common/ui/bar";
import { Button, CopyText } from "../common/ui/button";
import { Dialog, FormDialog } from "../common/ui/dialog";
import { Field, SelectField } from "../common/ui/field";
import { notify } from "../common/ui/notice";
import { Loaded } from "../common/ui/states";
import { Table } from "../common/ui/table";
import { session } from "../session";
import { Page } from "../shell";
import { t } from "../text";
import type { Role } from "../types";

const ROLES: readonly Role[] = ["owner", "organizer", "viewer"];

/** What is to be done with an account. */
interface Change {
  kind: "edit" | "reset";
  account: Account;
}

/** The page of accounts. */
export function AccountsPage() {
  const accounts = useLoad((signal) => call("accounts/list", {}, signal), []);
  const isOpen = useSignal(false);
  const change = useSignal<Change | null>(null);
  const invited = useSignal<InvitedAccount | null>(null);
  const show = (made: InvitedAccount) => {
    isOpen.value = false;
    change.value = null;
    invited.value = made;
    accounts.reload();
  };
  const edit = change.value?.kind === "edit" ? change.value.account : null;
  const reset = change.value?.kind === "reset" ? change.value.account : null;
  return (
    <Page
      title={t("nav.accounts")}
      actions={
        <Button kind="main" onClick={() => (isOpen.value = true)}>
          {t("accounts.invite")}
        </Button>
      }
    >
      <Loaded load={accounts} lines={3} height="2.5rem">
        {(page) => <AccountTable accounts={page.accounts} onChange={(chosen) => (change.value = chosen)} />}
      </Loaded>
      {isOpen.value && <Invite onClose={() => (isOpen.value = false)} onInvited={show} />}
      {edit && <EditAccount account={edit} onClose={() => (change.value = null)} onSaved={accounts.reload} />}
      {reset && <ResetAccount account={reset} onClose={() => (change.value = null)} onReset={show} />}
      {invited.value && (
        <Dialog title={t("accounts.link")} onClose={() => (invited.value = null)}>
          <div class="secret">
            <p>
              {t("accounts.link_text", {
                email: invited.value.account.email,
                time: formatTime(invited.value.expiresAt),
              })}
            </p>
            <CopyText text={invited.value.link} label={t("accounts.link")} />
          </div>
        </Dialog>
      )}
    </Page>
  );
}

function AccountTable({ accounts, onChange }: { accounts: Account[]; onChange: (change: Change) => void }) {
  const own = session.value?.account.id;
  return (
    <Table
      label={t("nav.accounts")}
      rows={accounts}
      rowKey={(account) => account.id}
      columns={[
        {
          name: t("accounts.person"),
          cell: (account) => (
            <>
              <span class="row">
                {account.name || account.email}
                {account.id === own && <Tag kind="plain">{t("accounts.you")}</Tag>}
              </span>
              {account.name && <p class="small quiet">{account.email}</p>}
            </>
          ),
        },
        { name: t("accounts.role"), cell: (account) => t(`role.${account.role}`) },
        { name: t("table.state"), cell: (account) => <AccountState account={account} /> },
        {
          name: t("accounts.seen"),
          cell: (account) => (account.lastSeenAt ? formatAgo(account.lastSeenAt) : t("keys.never")),
        },
        {
          name: "",
          cell: (account) =>
            account.id !== own && (
              <div class="row">
                <Button
                  onClick={() => onChange({ kind: "edit", account })}
                  aria-label={`${t("accounts.edit")}: ${account.email}`}
                >
                  {t("accounts.edit")}
                </Button>
                <Button
                  onClick={() => onChange({ kind: "reset", account })}
                  aria-label={`${nameOfLink(account)}: ${account.email}`}
                >
                  {nameOfLink(account)}
                </Button>
              </div>
            ),
        },
      ]}
    />
  );
}

/** Whether its person was invited and never came. Who has no password may have come by a link that signs in. */
function hasNeverCome({ invited, lastSeenAt }: Account): boolean {
  return invited && lastSeenAt === null;
}

/** What a new link is for. */
function nameOfLink(account: Account): string {
  return t(hasNeverCome(account) ? "accounts.invite_again" : "accounts.reset");
}

function AccountState({ account }: { account: Account }) {
  if (account.disabled) return <Tag kind="bad">{t("accounts.disabled")}</Tag>;
  if (hasNeverCome(account)) return <Tag kind="busy">{t("accounts.invited")}</Tag>;
  return <Tag kind="good">{t("accounts.active")}</Tag>;
}

function RoleField({ role, onChange }: { role: Role; onChange: (role: Role) => void }) {
  return (
    <SelectField
      label={t("accounts.role")}
      hint={t(`role.${role}_may`)}
      value={role}
      options={ROLES.map((each) => [each, t(`role.${each}`)] as const)}
      onChange={(value) => onChange(value as Role)}
    />
  );
}

function Invite({ onClose, onInvited }: { onClose: () => void; onInvited: (invited: InvitedAccount) => void }) {
  const email = useSignal("");
  const role = useSignal<Role>("organizer");
  const invite = useAction(async () => {
    onInvited(await call("accounts/invite", { email: email.value.trim(), role: role.value }));
  });
  return (
    <FormDialog
      title={t("accounts.invite")}
      action={t("accounts.invite_action")}
      does={invite}
      disabled={!email.value.includes("@")}
      onClose={onClose}
    >
      <Field
        label={t("field.email")}
        type="email"
        autoComplete="off"
        maxLength={254}
        value={email.value}
        onInput={(value) => (email.value = value)}
      />
      <RoleField role={role.value} onChange={(chosen) => (role.value = chosen)} />
    </FormDialog>
  );
}

function EditAccount({ account, onClose, onSaved }: { account: Account; onClose: () => void; onSaved: () => void }) {
  const role = useSignal(account.role);
  const state = useSignal(account.disabled ? "disabled" : "active");
  const save = useAction(async () => {
    await call("accounts/update", { accountId: account.id, role: role.value, disabled: state.value === "disabled" });
    notify(t("settings.saved"));
    onClose();
    onSaved();
  });
  return (
    <FormDialog title={account.email} action={t("ui.save")} does={save} onClose={onClose}>
      <RoleField role={role.value} onChange={(chosen) => (role.value = chosen)} />
      <SelectField
        label={t("table.state")}
        hint={t("accounts.disabled_hint")}
        value={state.value}
        options={[
          ["active", t("accounts.active")],
          ["disabled", t("accounts.disabled")],
        ]}
        onChange={(value) => (state.value = value)}
      />
    </FormDialog>
  );
}

function ResetAccount(props: { account: Account; onClose: () => void; onReset: (invited: InvitedAccount) => void }) {
  const { account, onClose, onReset } = props;
  const reset = useAction(async () => onReset(await call("accounts/reset", { accountId: account.id })));
  return (
    <FormDialog title={nameOfLink(account)} action={t("accounts.reset_action")} does={reset} onClose={onClose}>
      <p>{t(hasNeverCome(account) ? "accounts.invite_again_text" : "accounts.reset_text", { email: account.email })}</p>
    </FormDialog>
  );
}
