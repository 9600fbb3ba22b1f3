/** What a link of an invitation opens: a person chooses a password, or only enters. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import type { Operations } from "../api";
import { call } from "../calls";
import { formatTime } from "../common/format";
import type { ApiFailure } from "../common/http";
import { useAction, useLoad } from "../common/load";
import { link, navigate } from "../common/router";
import { Button } from "../common/ui/button";
import { Field } from "../common/ui/field";
import { Empty, Failed, Loaded } from "../common/ui/states";
import { language, translateIfThere } from "../common/words";
import { enter } from "../session";
import { t } from "../text";
import { LanguageSwitch } from "./language";

/** The shortest and longest password. */
export const PASSWORD_LENGTH = [12, 256] as const;

/** What is wrong with a password, in words. */
export function describePasswordIssue(failure: ApiFailure | undefined): string | undefined {
  const issue = failure?.issueOf("password");
  return issue && (translateIfThere(`password.${issue.code}`) ?? issue.message);
}

/** The page of a link. */
export function WelcomePage({ token }: { token: string }) {
  const invitation = useLoad((signal) => call("invitation/get", { token }, signal), [token]);
  useEffect(() => {
    document.title = `${t("welcome.title")} – Photofinish`;
  }, [language.value]);
  const isOver = invitation.failure.value?.status === 404;
  return (
    <main class="alone">
      <header>
        <p class="quiet">Photofinish</p>
        <h1>{t(isOver ? "welcome.over_title" : "welcome.title")}</h1>
      </header>
      {isOver ? (
        <Empty title={t("welcome.over")}>
          <a href={link("/")}>{t("sign_in.title")}</a>
        </Empty>
      ) : (
        <Loaded load={invitation} lines={4}>
          {(found) => <Invitation token={token} invitation={found} />}
        </Loaded>
      )}
      <LanguageSwitch />
    </main>
  );
}

type Invited = Operations["invitation/get"][1];

function Invitation({ token, invitation }: { token: string; invitation: Invited }) {
  const name = useSignal("");
  const password = useSignal("");
  const { purpose, email, organization } = invitation;
  const accept = useAction(async () => {
    const input: Operations["invitation/accept"][0] = { token };
    if (purpose !== "enter") input.password = password.value;
    if (purpose === "welcome" && name.value) input.name = name.value;
    await enter(await call("invitation/accept", input));
    navigate("/", true);
  });
  const issue = describePasswordIssue(accept.failure.value);
  return (
    <form
      class="stack"
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        void accept.run();
      }}
    >
      <p>{t(`welcome.${purpose}`, { organization, email })}</p>
      {/* Password managers keep the address with the password. */}
      <input class="visually-hidden" type="email" autoComplete="username" value={email} readOnly tabIndex={-1} aria-hidden />
      {purpose === "welcome" && (
        <Field label={t("field.name")} autoComplete="name" value={name.value} onInput={(value) => (name.value = value)} />
      )}
      {purpose !== "enter" && (
        <Field
          label={t("field.new_password")}
          type="password"
          autoComplete="new-password"
          hint={t("password.hint", { least: PASSWORD_LENGTH[0] })}
          error={issue}
          value={password.value}
          onInput={(value) => (password.value = value)}
        />
      )}
      {!issue && <Failed failure={accept.failure.value} />}
      <Button kind="main" type="submit" busy={accept.isBusy.value}>
        {t(`welcome.${purpose}_action`)}
      </Button>
      <p class="small quiet">{t("welcome.until", { time: formatTime(invitation.expiresAt) })}</p>
    </form>
  );
}
