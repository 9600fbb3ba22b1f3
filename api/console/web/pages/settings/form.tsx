/** What the panels of the settings have in common. */

import type { ComponentChildren } from "preact";

import type { Operations } from "../../api";
import type { Action } from "../../common/load";
import { Button } from "../../common/ui/button";
import { Failed } from "../../common/ui/states";
import { t } from "../../text";

/** A part of the settings. */
export type SettingsChange = Omit<Operations["albums/update"][0], "albumId">;

/** Saves a part of the settings, and offers to process the photos again where that is needed. */
export type Save = (change: SettingsChange) => Promise<void>;

/** Settings that are rarely changed, folded. */
export function More({ children }: { children: ComponentChildren }) {
  return (
    <details>
      <summary>{t("settings.more")}</summary>
      <div class="stack">{children}</div>
    </details>
  );
}

/** A panel with a part of the settings. */
export function SettingsForm(props: {
  title: string;
  action: Action<[]>;
  children: ComponentChildren;
}) {
  const { title, action, children } = props;
  return (
    <form
      class="panel panel-split"
      aria-label={title}
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        void action.run();
      }}
    >
      <h2>{title}</h2>
      <div class="form">
        {children}
        <Failed failure={action.failure.value} />
        <div class="row">
          <Button type="submit" kind="main" busy={action.isBusy.value}>
            {t("ui.save")}
          </Button>
        </div>
      </div>
    </form>
  );
}
