/** Lists that are longer than what one call gives. */

/** What one call gives at most. */
const MOST = 200;

interface Part {
  nextCursor: string | null;
}

/** Loads the first `count` of a list in as many calls as that needs; returns all parts. */
export async function loadParts<P extends Part>(
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

/** What the last part says of the whole list. */
export function pickEnd(parts: (Part & { total: number })[]): Part & { total: number } {
  const last = parts.at(-1);
  return { nextCursor: last?.nextCursor ?? null, total: last?.total ?? 0 };
}
