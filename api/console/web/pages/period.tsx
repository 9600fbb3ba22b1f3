/** A period of days, as reports ask for it. */

import type { Signal } from "@preact/signals";

import { Field } from "../common/ui/field";
import { t } from "../text";

/** Days from and to, both included, as `2025-05-01`. */
export interface Period {
  from: string;
  to: string;
}

/** Today, by the clock of the service (UTC). */
export function today(): string {
  return new Date().toISOString().slice(0, 10);
}

/** The day so many days ago. */
export function daysBefore(days: number): string {
  return new Date(Date.now() - days * 86_400_000).toISOString().slice(0, 10);
}

/** Two fields for a period. */
export function PeriodFields({ period }: { period: Signal<Period> }) {
  const set = (change: Partial<Period>) => {
    const next = { ...period.value, ...change };
    // A field that is being cleared has no day.
    if (next.from && next.to && next.from <= next.to) period.value = next;
  };
  return (
    <>
      <Field label={t("period.from")} type="date" value={period.value.from} onInput={(from) => set({ from })} />
      <Field label={t("period.to")} type="date" value={period.value.to} onInput={(to) => set({ to })} />
    </>
  );
}
