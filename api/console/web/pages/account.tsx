/** The own account: name, language, password, sessions. */

import { useSignal } from "@preact/signals";

import type { Account } from "../api";
import { call } from "../calls";
import { formatAgo, formatDay } from "../common/format";
import { useAction, useLoad } from "../common/load";
import { Tag } from "../common/ui/bar";
import { Button } from "../common/ui/button";
import { Field, SelectField } from "../common/ui/field";
import { notify } from "../common/ui/notice";
import { Failed, Loaded } from "../common/ui/states";
import { Table } from "../common/ui/table";
import { isLanguage, languages, switchLanguage } from "../common/words";
import { session } from "../session";
import { Page } from "../shell";
import { t } from "../text";
import { SettingsForm } from "./settings/form";
import { describePasswordIssue, PASSWORD_LENGTH } from "./welcome";

/** The page of the own account. */
export function AccountPage() {
  const account = session.value?.account;
  if (!account) return null;
  return (
    <Page title={t("account.title")}>
      <ProfileForm account={account} />
      <PasswordForm />
      <Sessions />
    </Page>
  );
}

function keep(account: Account): void {
  if (session.value) session.value = { ...session.value, account };
}

function ProfileForm({ account }: { account: Account }) {
  const name = useSignal(account.name);
  const language = useSignal(account.language ?? "");
  const save = useAction(async () => {
    keep(await call("account/update", { name: name.value.trim(), language: language.value || null }));
    await switchLanguage(isLanguage(language.value) ? language.value : null);
    notify(t("settings.saved"));
  });
  return (
    <SettingsForm title={t("account.profile")} action={save}>
      <dl class="facts">
        <dt>{t("field.email")}</dt>
        <dd>{account.email}</dd>
        <dt>{t("accounts.role")}</dt>
        <dd>{t(`role.${account.role}`)}</dd>
      </dl>
      <Field
        label={t("field.name")}
        autoComplete="name"
        maxLength={200}
        value={name.value}
        onInput={(value) => (name.value = value)}
      />
      <SelectField
        label={t("account.language")}
        value={language.value}
        options={[["", t("account.language_browser")], ...Object.entries(languages)]}
        onChange={(value) => (language.value = value)}
      />
    </SettingsForm>
  );
}

function PasswordForm() {
  const current = useSignal("");
  const next = useSignal("");
  const save = useAction(async () => {
    keep(await call("account/update", { password: { current: current.value, new: next.value } }));
    current.value = "";
    next.value = "";
    notify(t("account.password_changed"));
  });
  const failure = save.failure.value;
  const issue = describePasswordIssue(failure);
  const isWrong = failure?.reason === "WRONG_PASSWORD";
  return (
    <form
      class="panel panel-split"
      aria-labelledby="password-title"
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        void save.run();
      }}
    >
      <h2 id="password-title">{t("field.password")}</h2>
      <div class="form">
        <p class="quiet">{t("account.password_hint")}</p>
        <Field
          label={t("account.current_password")}
          type="password"
          autoComplete="current-password"
          error={isWrong ? t("ui.failure.WRONG_PASSWORD") : undefined}
          value={current.value}
          onInput={(value) => (current.value = value)}
        />
        <Field
          label={t("field.new_password")}
          type="password"
          autoComplete="new-password"
          hint={t("password.hint", { least: PASSWORD_LENGTH[0] })}
          error={issue}
          value={next.value}
          onInput={(value) => (next.value = value)}
        />
        {!issue && !isWrong && <Failed failure={failure} />}
        <div class="row">
          <Button type="submit" kind="main" busy={save.isBusy.value} disabled={!current.value || !next.value}>
            {t("account.change_password")}
          </Button>
        </div>
      </div>
    </form>
  );
}

function Sessions() {
  const sessions = useLoad((signal) => call("sessions/list", {}, signal), []);
  const end = useAction(async (sessionId: string) => {
    await call("sessions/end", { sessionId });
    sessions.reload();
  });
  return (
    <section class="panel panel-split" aria-labelledby="sessions-title">
      <h2 id="sessions-title">{t("account.sessions")}</h2>
      <Failed failure={end.failure.value} />
      <Loaded load={sessions} lines={2} height="2.5rem">
        {(list) => (
          <Table
            label={t("account.sessions")}
            rows={list.sessions}
            rowKey={(each) => each.id}
            columns={[
              {
                name: t("account.device"),
                cell: (each) => <span title={each.device}>{describeDevice(each.device)}</span>,
              },
              { name: t("account.began"), cell: (each) => formatDay(each.createdAt) },
              { name: t("accounts.seen"), cell: (each) => formatAgo(each.lastSeenAt) },
              {
                name: "",
                cell: (each) =>
                  each.current ? (
                    <Tag kind="good">{t("account.this_session")}</Tag>
                  ) : (
                    <Button busy={end.isBusy.value} onClick={() => void end.run(each.id)}>
                      {t("account.end_session")}
                    </Button>
                  ),
              },
            ]}
          />
        )}
      </Loaded>
    </section>
  );
}

/** The browser and the system that a browser says it is, as far as they can be told apart. */
function describeDevice(device: string): string {
  const browser = /Edg|OPR|Firefox|Chrome|Safari/.exec(device)?.[0];
  const system = /Android|iPhone|iPad|Windows|Mac OS X|CrOS|Linux/.exec(device)?.[0];
  const names: Record<string, string> = { Edg: "Edge", OPR: "Opera", "Mac OS X": "macOS", CrOS: "ChromeOS" };
  const words = [browser, system].filter((word) => word !== undefined).map((word) => names[word] ?? word);
  return words.join(" · ") || device.slice(0, 60);
}
