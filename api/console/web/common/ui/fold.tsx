/** What narrow windows show only when it is asked for. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

import { Button } from "./button";

/** Folds what is in it behind a button where the window is narrow, unless `isOpen`. */
export function Fold({ label, isOpen = false, children }: { label: string; isOpen?: boolean; children: ComponentChildren }) {
  const id = useId();
  const isAsked = useSignal(false);
  return (
    <div class={isOpen || isAsked.value ? "fold fold-open" : "fold"}>
      {!isOpen && (
        <Button aria-expanded={isAsked.value} aria-controls={id} onClick={() => (isAsked.value = !isAsked.value)}>
          {label}
        </Button>
      )}
      <div id={id} class="stack">
        {children}
      </div>
    </div>
  );
}
