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
  /** What is on its way to be saved: soon it is what the fields were before somebody touches them. */
  const pending = useSignal<Partial<T>>({});
  const set = (change: Partial<T>) => {
    // What is set back to what it was is as if nobody had touched it.
    edits.value = differing({ ...edits.value, ...change }, { ...loaded, ...pending.value });
  };
  const save = async (send: (changes: Partial<T>) => Promise<unknown>) => {
    const sent = differing(edits.value, loaded);
    pending.value = sent;
    // What is filled in meanwhile stays.
    edits.value = {};
    try {
      await send(sent);
    } catch (error) {
      // Nothing was saved: it is changed as before.
      edits.value = differing({ ...sent, ...edits.value }, loaded);
      throw error;
    } finally {
      pending.value = {};
    }
  };
  return { shown: { ...loaded, ...pending.value, ...edits.value }, set, save };
}

/** Those of some edits that are not what the fields were before. */
function differing<T extends object>(edits: Partial<T>, before: T): Partial<T> {
  const kept = Object.entries(edits).filter(([name, value]) => !isSame(value, before[name as keyof T]));
  return Object.fromEntries(kept) as Partial<T>;
}

function isSame(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}
