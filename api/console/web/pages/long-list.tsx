/** Lists that are longer than what one call gives: more of them are shown by a button. */

import { useSignal } from "@preact/signals";

import { type Load, useLoad } from "../common/load";
import { Button } from "../common/ui/button";
import { t } from "../text";

/** What one call gives at most. */
const MOST = 200;

interface Part {
  nextCursor: string | null;
  total: number;
}

export interface LongList<T> {
  items: T[];
  /** How many there are, with those that are not shown. */
  total: number;
  /** Whether there are more than are shown. */
  goesOn: boolean;
}

export interface LoadedList<T> {
  load: Load<LongList<T>>;
  showMore: () => void;
}

/** Loads a list; `step` of its items at first, and more by each press of the button. */
export function useLongList<P extends Part, T>(
  step: number,
  loadPart: (page: { limit: number; cursor?: string }, signal: AbortSignal) => Promise<P>,
  itemsOf: (part: P) => T[],
  dependencies: readonly unknown[],
): LoadedList<T> {
  const steps = useSignal(1);
  const load = useLoad(
    async (signal) => {
      const parts = await loadParts(steps.value * step, (page) => loadPart(page, signal));
      const last = parts.at(-1);
      return { items: parts.flatMap(itemsOf), total: last?.total ?? 0, goesOn: Boolean(last?.nextCursor) };
    },
    [...dependencies, steps.value],
  );
  return { load, showMore: () => (steps.value += 1) };
}

/** The button below a list that has more. */
export function More<T>({ list }: { list: LoadedList<T> }) {
  if (!list.load.value.value?.goesOn) return null;
  return (
    <div class="row">
      <Button busy={list.load.isLoading.value} onClick={list.showMore}>
        {t("ui.more")}
      </Button>
    </div>
  );
}

/** Loads the first `count` of a list in as many calls as that needs; returns all parts. */
async function loadParts<P extends Part>(
  count: number,
  load: (page: { limit: number; cursor?: string }) => Promise<P>,
): Promise<P[]> {
  const parts: P[] = [];
  let left = count;
  let cursor: string | null = null;
  do {
    const limit = Math.min(left, MOST);
    const part: P = await load(cursor === null ? { limit } : { limit, cursor });
    parts.push(part);
    left -= limit;
    cursor = part.nextCursor;
  } while (left > 0 && cursor !== null);
  return parts;
}
