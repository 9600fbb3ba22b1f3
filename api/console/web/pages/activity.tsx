/** What has happened, newest first, and what happens now. */

import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";

import type { Event as ActivityEvent } from "../api";
import { call, follow } from "../calls";
import { formatTime } from "../common/format";
import { type ApiFailure, toApiFailure } from "../common/http";
import { useWhileSeen } from "../common/load";
import { Empty, ErrorState, Loading } from "../common/ui/states";
import { ConnectionLost, Page } from "../shell";
import { t, tCount, tName } from "../text";
import { AlbumName, loadTitles, type Titles } from "./album-titles";

/** Events that are kept on the page. */
const KEPT = 200;
/** Pages of older events that are read to get to the newest, at most. */
const MOST_PAGES = 40;

/** The page of events. */
export function ActivityPage() {
  const events = useSignal<ActivityEvent[]>([]);
  const isThere = useSignal(false);
  const isAway = useSignal(false);
  const failure = useSignal<ApiFailure | undefined>(undefined);
  const titles = useSignal<Titles>(new Map());
  // Who comes back to the page goes on after what it has.
  const cursor = useRef<string | undefined>(undefined);
  useWhileSeen((signal) => {
    const keep = (more: ActivityEvent[], after = cursor.current) => {
      // Whoever has begun again since reads it once more.
      if (signal.aborted) return;
      events.value = [...more.toReversed(), ...events.value].slice(0, KEPT);
      cursor.current = after;
    };
    const begin = async () => {
      titles.value = await loadTitles(signal);
      await readBack(cursor.current, keep, signal);
      isThere.value = true;
      failure.value = undefined;
      const input = cursor.current ? { cursor: cursor.current } : {};
      const onConnection = (connected: boolean) => (isAway.value = !connected);
      await follow<"events/list", ActivityEvent>("events/list", input, {
        signal,
        onMessage: (event, id) => keep([event], id),
        onConnection,
      });
    };
    begin().catch((error: unknown) => {
      if (!signal.aborted) failure.value = toApiFailure(error);
    });
  }, []);
  return (
    <Page title={t("nav.activity")}>
      <ConnectionLost isAway={isAway.value} />
      {failure.value && <ErrorState failure={failure.value} />}
      {!isThere.value && !failure.value && <Loading lines={5} height="2rem" />}
      {isThere.value && events.value.length === 0 && <Empty title={t("activity.none")} />}
      <ol class="events">
        {events.value.map((event) => (
          <EventItem key={event.id} event={event} titles={titles.value} />
        ))}
      </ol>
    </Page>
  );
}

/** Reads what has happened after a cursor, or ever: oldest first as the service lists it, each page with the cursor after it. */
async function readBack(
  begin: string | undefined,
  keep: (events: ActivityEvent[], after: string) => void,
  signal: AbortSignal,
): Promise<void> {
  let cursor = begin;
  for (let pages = 0; pages < MOST_PAGES; pages += 1) {
    const page = await call("events/list", { limit: 500, ...(cursor ? { cursor } : {}) }, signal);
    keep(page.events, page.nextCursor);
    cursor = page.nextCursor;
    if (page.events.length < 500) break;
  }
}

function EventItem({ event, titles }: { event: ActivityEvent; titles: Titles }) {
  const { albumId, count } = event.data;
  return (
    <li>
      <time class="small quiet numeric" dateTime={event.timestamp}>
        {formatTime(event.timestamp)}
      </time>
      <span>
        <strong>{tName("event", event.type)}</strong>
        {typeof count === "number" && ` · ${tCount("photos.count", count)}`}
        {typeof albumId === "string" && (
          <>
            {" · "}
            <AlbumName albumId={albumId} titles={titles} />
          </>
        )}
      </span>
    </li>
  );
}
