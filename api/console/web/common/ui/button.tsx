/** Buttons, and links that look like them. */

import type { ComponentChildren, JSX } from "preact";
import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";

import { translate } from "../words";

/** How much a button stands out: `main` once a page, `danger` for what cannot be undone. */
export type ButtonKind = "main" | "plain" | "quiet" | "danger";

/** What a button takes. */
export interface ButtonProps extends Omit<JSX.IntrinsicElements["button"], "kind" | "icon"> {
  kind?: ButtonKind;
  /** While busy it does nothing, but keeps the focus. */
  busy?: boolean;
  children: ComponentChildren;
}

/** A button. */
export function Button({ kind = "plain", busy = false, children, onClick, type = "button", ...rest }: ButtonProps) {
  return (
    <button
      {...rest}
      type={type}
      class={`button button-${kind}`}
      aria-disabled={busy || undefined}
      aria-busy={busy || undefined}
      onClick={(event) => {
        if (busy) return event.preventDefault();
        onClick?.(event);
      }}
    >
      {children}
    </button>
  );
}

/** A link that looks like a button. */
export function LinkButton(props: { href: string; kind?: ButtonKind; download?: string; children: ComponentChildren }) {
  const { href, kind = "plain", download, children } = props;
  return (
    <a class={`button button-${kind}`} href={href} download={download}>
      {children}
    </a>
  );
}

function copySelected(input: HTMLInputElement | null): void {
  input?.select();
  if (!document.execCommand("copy")) throw new Error("the browser copies nothing");
}

/** A text that is to be copied, such as a link or a secret. */
export function CopyText({ text, label }: { text: string; label: string }) {
  const isCopied = useSignal(false);
  const input = useRef<HTMLInputElement>(null);
  const copy = async () => {
    // Pages without TLS, as in the network of an office, have no clipboard but this old way.
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else copySelected(input.current);
    isCopied.value = true;
    setTimeout(() => (isCopied.value = false), 3000);
  };
  return (
    <div class="copy">
      <input
        ref={input}
        class="input"
        readOnly
        aria-label={label}
        value={text}
        onFocus={(event) => event.currentTarget.select()}
      />
      <Button onClick={() => void copy().catch(() => undefined)}>
        <span aria-live="polite">{translate(isCopied.value ? "ui.copied" : "ui.copy")}</span>
      </Button>
    </div>
  );
}
