/** Pages of pictures whose addresses end after a while: a page whose addresses are old is loaded again, by its cursor. */

/** A page that was loaded. */
export interface LoadedPage {
  /** Brings it again. */
  cursor: string | null;
  /** When the addresses of its pictures came. */
  since: number;
}

/**
 * A picture of a page did not come: where the addresses of the page are older than `freshMs`, milliseconds, it comes again.
 * Gives what puts each photo of it in the place of the old one, so that the order of what is shown stays; nothing where the
 * addresses are not old. Fails as `load` does.
 */
export async function renewPage<P extends { id: string }>(
  page: LoadedPage | undefined,
  freshMs: number,
  load: (cursor: string | null) => Promise<{ photos: P[] }>,
): Promise<((old: P) => P) | undefined> {
  if (!page || Date.now() - page.since < freshMs) return undefined;
  // Also where it fails: each picture that does not come would ask again.
  page.since = Date.now();
  const { photos } = await load(page.cursor);
  const fresh = new Map(photos.map((photo) => [photo.id, photo]));
  return (old) => fresh.get(old.id) ?? old;
}
