/** Rows of pictures that fill the width, each picture with its own shape. Knows nothing of the page. */

/** A row of pictures: those from `start` to before `end`. */
export interface GridRow {
  top: number;
  height: number;
  start: number;
  end: number;
}

/** How rows are made. Sizes are CSS pixels. */
export interface GridShape {
  width: number;
  gap: number;
  /** The height that rows are near to. */
  height: number;
}

/** The share by which the last row may be higher than wanted to fill the width. */
const LAST_ROW_STRETCH = 1.15;

/** Lays pictures out in rows, by their width divided by their height. */
export function layOut(aspects: readonly number[], shape: GridShape): GridRow[] {
  const rows: GridRow[] = [];
  let start = 0;
  let sum = 0;
  let top = 0;
  for (let index = 0; index < aspects.length; index += 1) {
    sum += aspects[index] ?? 1;
    const isLast = index === aspects.length - 1;
    const space = shape.width - shape.gap * (index - start);
    let height = space / sum;
    if (height > shape.height && !isLast) continue;
    if (isLast && height > shape.height * LAST_ROW_STRETCH) height = shape.height;
    // A last row that is higher than the one above it looks like another grid.
    if (isLast) height = Math.min(height, rows.at(-1)?.height ?? height);
    rows.push({ top, height, start, end: index + 1 });
    top += height + shape.gap;
    start = index + 1;
    sum = 0;
  }
  return rows;
}

/** The height of all rows. */
export function fullHeight(rows: readonly GridRow[]): number {
  const last = rows.at(-1);
  return last ? last.top + last.height : 0;
}

/** The rows that are between two heights, as indices from and to before. */
export function visibleRows(rows: readonly GridRow[], from: number, to: number): [number, number] {
  let low = 0;
  let high = rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const row = rows[middle];
    if (row && row.top + row.height < from) low = middle + 1;
    else high = middle;
  }
  let end = low;
  while (end < rows.length && (rows[end]?.top ?? 0) <= to) end += 1;
  return [low, end];
}
