/** Dialogs on `<dialog>`, which keeps the focus inside and gives it back. */

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";

import type { Action } from "../load";
import { translate } from "../words";
import { Button } from "./button";
import { Failed } from "./states";

/** A dialog that is open as long as it is there. */
export function Dialog(props: { title: string; onClose: () => void; wide?: boolean; children: ComponentChildren }) {
  const { title, onClose, wide = false, children } = props;
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const element = dialog.current;
    if (!element) return;
    const before = document.activeElement;
    element.showModal();
    return () => {
      element.close();
      // By the time it is closed it is no part of the page any more, and the browser gives nothing back.
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      class={wide ? "dialog dialog-wide" : "dialog"}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
    >
      <header class="row row-apart">
        <h2 id={id}>{title}</h2>
        <Button kind="quiet" onClick={onClose} aria-label={translate("ui.close")}>
          <span aria-hidden="true">✕</span>
        </Button>
      </header>
      {children}
    </dialog>
  );
}

/** A dialog with a form: what it asks, and a button that does it. */
export function FormDialog(props: {
  title: string;
  /** The words on the button. */
  action: string;
  kind?: "main" | "danger";
  does: Action<[]>;
  disabled?: boolean;
  onClose: () => void;
  children: ComponentChildren;
}) {
  const { title, action, kind = "main", does, disabled, onClose, children } = props;
  const submit = (event: Event) => {
    event.preventDefault();
    if (!disabled) void does.run();
  };
  return (
    <Dialog title={title} onClose={onClose}>
      <form class="stack" onSubmit={submit} noValidate>
        {children}
        <Failed failure={does.failure.value} />
        <div class="row row-end">
          <Button onClick={onClose}>{translate("ui.cancel")}</Button>
          <Button kind={kind} type="submit" busy={does.isBusy.value} disabled={disabled}>
            {action}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
