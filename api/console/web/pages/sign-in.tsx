/** Signing in. */

import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { call } from "../calls";
import { useAction } from "../common/load";
import { Button } from "../common/ui/button";
import { Field } from "../common/ui/field";
import { Dialog } from "../common/ui/dialog";
import { Failed } from "../common/ui/states";
import { language } from "../common/words";
import { enter, session } from "../session";
import { t } from "../text";
import { LanguageSwitch } from "./language";

/** The page of visitors without a session; `again` where one has ended beneath a page, which stays as it is. */
export function SignInPage({ again = false }: { again?: boolean }) {
  useEffect(() => {
    if (!again) document.title = `${t("sign_in.title")} – Photofinish`;
  }, [language.value]);
  if (again) {
    return (
      <Dialog title={t("sign_in.ended")} onClose={() => (session.value = null)}>
        <SignInForm />
      </Dialog>
    );
  }
  return (
    <main class="alone">
      <header>
        <p class="quiet">Photofinish</p>
        <h1>{t("sign_in.title")}</h1>
      </header>
      <SignInForm />
      <LanguageSwitch />
    </main>
  );
}

function SignInForm() {
  const email = useSignal(session.value?.account.email ?? "");
  const password = useSignal("");
  const signIn = useAction(async () => {
    await enter(await call("session/create", { email: email.value, password: password.value }));
  });
  return (
    <form
      class="stack"
      onSubmit={(event) => {
        event.preventDefault();
        void signIn.run();
      }}
    >
      <Field
        label={t("field.email")}
        type="email"
        name="email"
        autoComplete="username"
        required
        value={email.value}
        onInput={(value) => (email.value = value)}
      />
      <Field
        label={t("field.password")}
        type="password"
        name="password"
        autoComplete="current-password"
        required
        value={password.value}
        onInput={(value) => (password.value = value)}
      />
      <Failed failure={signIn.failure.value} />
      <Button kind="main" type="submit" busy={signIn.isBusy.value}>
        {t("sign_in.action")}
      </Button>
      <p class="small quiet">{t("sign_in.forgotten")}</p>
    </form>
  );
}
