/** A grid of pictures in justified rows. Only rows near the window are in the document, so 50,000 pictures are no matter. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";

import { fullHeight, type GridRow, layOut, visibleRows } from "./grid-layout";

const GAP = 4;
/** Rows within so many window heights of what is seen are kept. */
const MARGIN = 1;

/** What a grid shows. */
export interface GridProps<T> {
  items: T[];
  /** How many there are with those that are not loaded, as far as it is known: there may be more by now. */
  total: number;
  /** Whether some are not loaded. */
  hasMore: boolean;
  label: string;
  aspect: (item: T) => number;
  itemKey: (item: T) => string;
  /** A picture; its first link or button takes the focus. */
  render: (item: T, index: number) => ComponentChildren;
  /** Called when the end comes near. */
  onEnd?: () => void;
  /** The picture that is in view and has the focus at first; -1 for none. */
  startAt?: number;
  /** The height that rows are near to in a narrow window. */
  narrowRow?: number;
}

/** The grid. Arrow keys go from picture to picture. */
export function VirtualGrid<T>(props: GridProps<T>) {
  const { items, total, hasMore, label, aspect, itemKey, render, onEnd, startAt = -1, narrowRow = 120 } = props;
  const list = useRef<HTMLUListElement>(null);
  const width = useSignal(0);
  const view = useSignal<[from: number, to: number]>([0, 0]);
  const focused = useRef<number | null>(null);
  useViewport(list, width, view);

  const rowHeight = width.value < 600 ? narrowRow : 190;
  const rows = useMemo(
    () => (width.value > 0 ? layOut(items.map(aspect), { width: width.value, gap: GAP, height: rowHeight }) : []),
    [items, width.value, rowHeight],
  );
  const [first, end] = visibleRows(rows, view.value[0], view.value[1]);
  const isAtEnd = rows.length > 0 && end >= rows.length && hasMore;
  useEffect(() => {
    if (isAtEnd) onEnd?.();
  }, [isAtEnd, items]);
  useLayoutEffect(() => {
    // The row of the picture may just have come into the document.
    if (focused.current === null) return;
    const cell = list.current?.querySelector<HTMLElement>(`[data-index="${focused.current}"] :is(a, button)`);
    if (!cell) return;
    focused.current = null;
    cell.focus({ preventScroll: true });
  });

  const goTo = (index: number) => {
    const row = rows.find((candidate) => index < candidate.end);
    if (!row || !list.current) return;
    focused.current = index;
    bringIntoView(list.current, row);
    view.value = [...view.value];
  };
  const move = (event: KeyboardEvent) => {
    const to = nextIndex(event.key, indexOf(event.target), items.length, rows);
    if (to !== null) event.preventDefault();
    if (to !== null) goTo(to);
  };
  const size = Math.max(total, items.length);
  const isLaidOut = rows.length > 0;
  useEffect(() => {
    if (isLaidOut && startAt >= 0) goTo(startAt);
  }, [isLaidOut]);

  return (
    <ul ref={list} class="grid" aria-label={label} onKeyDown={move} style={{ height: `${fullHeight(rows)}px` }}>
      {rows.slice(first, end).flatMap((row) => {
        const styles = placeRow(row, items.slice(row.start, row.end).map(aspect));
        return styles.map((style, at) => {
          const index = row.start + at;
          const item = items[index] as T;
          return (
            <li key={itemKey(item)} data-index={index} aria-setsize={size} aria-posinset={index + 1} style={style}>
              {render(item, index)}
            </li>
          );
        });
      })}
    </ul>
  );
}

/** The place of each picture of a row, by its shape. */
function placeRow(row: GridRow, aspects: number[]): Record<string, string>[] {
  let left = 0;
  return aspects.map((aspect) => {
    const width = row.height * aspect;
    const style = { top: px(row.top), left: px(left), width: px(width), height: px(row.height) };
    left += width + GAP;
    return style;
  });
}

/** The picture that an element belongs to; -1 for none. */
function indexOf(target: EventTarget | null): number {
  return Number((target as Element | null)?.closest("[data-index]")?.getAttribute("data-index") ?? -1);
}

function bringIntoView(list: HTMLElement, row: GridRow): void {
  const top = list.getBoundingClientRect().top + scrollY + row.top;
  const isInView = top >= scrollY && top + row.height <= scrollY + innerHeight;
  if (!isInView) scrollTo(0, top - innerHeight / 2 + row.height / 2);
}

function px(length: number): string {
  return `${length.toFixed(2)}px`;
}

/** Where a key leads to from a picture; null where it leads nowhere. */
function nextIndex(key: string, index: number, count: number, rows: { start: number; end: number }[]): number | null {
  if (index < 0) return null;
  const row = rows.findIndex((candidate) => index < candidate.end);
  const column = index - (rows[row]?.start ?? 0);
  const below = (at: number) => {
    const target = rows[at];
    return target ? Math.min(target.start + column, target.end - 1) : null;
  };
  const moves: Record<string, number | null> = {
    ArrowRight: index + 1 < count ? index + 1 : null,
    ArrowLeft: index > 0 ? index - 1 : null,
    ArrowDown: below(row + 1),
    ArrowUp: below(row - 1),
    Home: 0,
    End: count - 1,
  };
  return moves[key] ?? null;
}

interface Held<T> {
  value: T;
}

/** Follows the width of the list and what of it the window shows. */
function useViewport(list: { current: HTMLUListElement | null }, width: Held<number>, view: Held<[number, number]>): void {
  useLayoutEffect(() => {
    const element = list.current;
    if (!element) return;
    const measure = () => {
      const box = element.getBoundingClientRect();
      if (box.width !== width.value) width.value = box.width;
      const from = -box.top - innerHeight * MARGIN;
      const to = -box.top + innerHeight * (1 + MARGIN);
      // Whole steps, so that not every scrolled pixel draws again.
      const next: [number, number] = [Math.floor(from / 100) * 100, Math.ceil(to / 100) * 100];
      if (next[0] !== view.value[0] || next[1] !== view.value[1]) view.value = next;
    };
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    addEventListener("scroll", measure, { passive: true });
    addEventListener("resize", measure);
    measure();
    return () => {
      observer.disconnect();
      removeEventListener("scroll", measure);
      removeEventListener("resize", measure);
    };
  }, []);
}
