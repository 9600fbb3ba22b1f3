/** What is changed in a form over what was loaded. */

import { useSignal } from "@preact/signals";

/** A form whose fields follow what is loaded until somebody touches them. */
export interface Edits<T> {
  /** What the fields show. */
  shown: T;
  /** Fills in some of the fields. */
  set: (change: Partial<T>) => void;
  /** Saves what was changed alone: a colleague may have changed the rest meanwhile. Then its fields follow what is loaded too. */
  save: (send: (changes: Partial<T>) => Promise<unknown>) => Promise<void>;
}

/** Begins a form over what is loaded, and goes on with it when that is loaded again. */
export function useEdits<T extends object>(loaded: T): Edits<T> {
  const edits = useSignal<Partial<T>>({});
  const set = (change: Partial<T>) => {
    // What is set back to what it was is as if nobody had touched it.
    edits.value = keep({ ...edits.value, ...change }, (name, value) => !isSame(value, loaded[name]));
  };
  const save = async (send: (changes: Partial<T>) => Promise<unknown>) => {
    const sent = edits.value;
    await send(keep(sent, (name, value) => !isSame(value, loaded[name])));
    // What was filled in meanwhile stays.
    edits.value = keep(edits.value, (name, value) => value !== sent[name]);
  };
  return { shown: { ...loaded, ...edits.value }, set, save };
}

function keep<T extends object>(edits: Partial<T>, isKept: (name: keyof T, value: unknown) => boolean): Partial<T> {
  const kept = Object.entries(edits).filter(([name, value]) => isKept(name as keyof T, value));
  return Object.fromEntries(kept) as Partial<T>;
}

function isSame(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
