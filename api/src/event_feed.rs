//! Reads new events once for all streams of this process, and counts its streams.
//!
//! While there are streams, a task reads the events of all tenants and keeps the newest in memory. A stream that is further
//! behind than these reads its own events from the database until it has caught up.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use photofinish_store::model::event::Event;
use photofinish_store::model::ids::{KeyId, OrganizationId};
use photofinish_store::traits::{Events, Result};
use photofinish_store::{StoreError, StoreErrorKind};
use tokio::sync::watch;

use crate::errors::ApiError;
use crate::seats::SeatLimits;
use crate::stream_places::{StreamPlace, StreamPlaces};

/// Time between two reads.
const READ_INTERVAL: Duration = Duration::from_millis(500);
/// Events of one read.
const READ_LIMIT: u32 = 500;
/// Events in memory, 20 KB each at most.
const MAX_RECENT: usize = 1000;
/// Streams of one key, and of all keys, of which an organization has a quarter.
const MAX_STREAMS_PER_KEY: usize = 20;
const MAX_STREAMS: usize = 2000;

/// The newest events, for all streams. Cheap to clone.
#[derive(Clone)]
pub struct EventFeed(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    places: StreamPlaces,
    /// Up to where [`State::recent`] goes; 0 before the first read.
    newest: watch::Sender<i64>,
}

#[derive(Default)]
struct State {
    has_reader: bool,
    /// All events after `begin`, in their order.
    recent: VecDeque<Arc<Event>>,
    begin: i64,
    /// How often the database has forgotten events that were read.
    restores: u64,
}

impl EventFeed {
    /// A feed whose streams have half of all seats at most.
    pub fn for_seats(seats: SeatLimits) -> Self {
        let places = StreamPlaces::new(MAX_STREAMS_PER_KEY, (seats.total / 2).min(MAX_STREAMS));
        Self(Arc::new(Shared { state: Mutex::default(), places, newest: watch::Sender::new(0) }))
    }
}

/// Events after a position.
pub(crate) enum Recent {
    /// All of them, of all tenants.
    Events(Vec<Arc<Event>>),
    /// Some are no longer in memory: those up to this sequence are in the database.
    UpTo(i64),
    /// The database was restored since the stream began: positions from before mean nothing.
    Restored,
}

/// A stream that counts as open until this is dropped.
pub(crate) struct StreamPermit {
    feed: EventFeed,
    _place: StreamPlace,
    /// [`State::restores`] when it began.
    restores: u64,
}

impl StreamPermit {
    /// Changes whenever there are new events. Begins as changed.
    pub(crate) fn subscribe(&self) -> watch::Receiver<i64> {
        let mut newest = self.feed.0.newest.subscribe();
        newest.mark_changed();
        newest
    }

    /// Returns what came after a position.
    pub(crate) fn after(&self, position: i64) -> Recent {
        let state = self.feed.state();
        if state.restores != self.restores {
            return Recent::Restored;
        }
        if position < state.begin {
            return Recent::UpTo(state.begin);
        }
        let first = state.recent.partition_point(|event| event.sequence <= position);
        Recent::Events(state.recent.range(first..).cloned().collect())
    }
}

impl EventFeed {
    /// Opens a stream of a key. The first one starts the task that reads.
    ///
    /// # Errors
    /// 429 if the key or its organization has too many, 503 if all together have.
    pub(crate) fn open(
        &self,
        organization: OrganizationId,
        key: KeyId,
        events: &Arc<dyn Events>,
    ) -> std::result::Result<StreamPermit, ApiError> {
        // Under the lock, under which the reader looks whether there are streams.
        let mut state = self.state();
        let place = self.0.places.take_place(organization, key)?;
        if !state.has_reader {
            state.has_reader = true;
            tokio::spawn(self.clone().read_while_needed(Arc::clone(events)));
        }
        Ok(StreamPermit { feed: self.clone(), _place: place, restores: state.restores })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read_while_needed(self, events: Arc<dyn Events>) {
        let mut interval = tokio::time::interval(READ_INTERVAL);
        let mut position = None;
        let mut is_failing = false;
        loop {
            interval.tick().await;
            {
                let mut state = self.state();
                if self.0.places.is_free() {
                    *state = State { restores: state.restores, ..State::default() };
                    self.0.newest.send_replace(0);
                    return;
                }
            }
            // A panic is an outage too: without a reader every stream would tell nothing for ever.
            let reading = AssertUnwindSafe(self.read(&*events, &mut position)).catch_unwind();
            let panicked = |_| Err(StoreError::new(StoreErrorKind::Unavailable, "read new events: panicked"));
            let read = reading.await.unwrap_or_else(panicked);
            // Once per outage. Streams end by themselves when they cannot check their key.
            if let Err(error) = &read
                && !is_failing
            {
                tracing::warn!(%error, "failed to read new events, retrying every 500 ms");
            }
            is_failing = read.is_err();
        }
    }

    /// Reads what is new since the last read. `None` before the first, and after a database was restored that does not
    /// know what was read.
    async fn read(&self, events: &dyn Events, position: &mut Option<i64>) -> Result<()> {
        let newest = events.newest().await?;
        let mut last = match *position {
            Some(last) if last <= newest => last,
            known => {
                let mut state = self.state();
                state.recent.clear();
                state.begin = newest;
                state.restores += u64::from(known.is_some());
                newest
            }
        };
        while last < newest {
            let read = events.read_after(last, READ_LIMIT).await?;
            let Some(newest_read) = read.last() else { break };
            last = newest_read.sequence;
            let mut state = self.state();
            state.recent.extend(read.into_iter().map(Arc::new));
            while state.recent.len() > MAX_RECENT {
                state.begin = state.recent.pop_front().map_or(last, |event| event.sequence);
            }
        }
        *position = Some(last);
        self.0.newest.send_if_modified(|newest| std::mem::replace(newest, last) != last);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use async_trait::async_trait;
    use photofinish_store::Store;
    use photofinish_store::conformance::test_settings;
    use photofinish_store::model::album::Tenant;
    use photofinish_store::model::event::{EventLoss, EventPage, EventQuery};
    use photofinish_store::model::ids::EventId;
    use photofinish_store::model::key::KeyMode;
    use serde_json::{Map, json};
    use time::OffsetDateTime;

    use super::*;
    use crate::errors::table::ErrorKind;

    /// The sequence of the only event of [`PanickingEvents`].
    const ONLY: i64 = 2;

    /// Panics when it is asked for the second time. Then it has an event.
    #[derive(Default)]
    struct PanickingEvents {
        asked: AtomicI64,
    }

    #[async_trait]
    impl Events for PanickingEvents {
        async fn list(&self, _tenant: &Tenant, query: EventQuery) -> Result<EventPage> {
            Ok(EventPage { events: Vec::new(), up_to: query.after })
        }

        async fn read_after(&self, _sequence: i64, _limit: u32) -> Result<Vec<Event>> {
            Ok(vec![Event {
                sequence: ONLY,
                id: EventId::generate(),
                tenant: Tenant { organization: OrganizationId::generate(), mode: KeyMode::Live },
                event_type: "photo.ready".to_owned(),
                album: None,
                data: Map::new(),
                created_at: OffsetDateTime::UNIX_EPOCH,
            }])
        }

        async fn newest(&self) -> Result<i64> {
            let asked = self.asked.fetch_add(1, Ordering::SeqCst);
            assert!(asked != 1, "a panic of this test");
            Ok(asked.min(ONLY))
        }

        async fn find_loss(&self, _tenant: &Tenant, _after: i64) -> Result<Option<EventLoss>> {
            Ok(None)
        }
    }

    fn open_feed() -> EventFeed {
        EventFeed::for_seats(SeatLimits::for_open_files(u64::MAX))
    }

    #[test]
    fn streams_of_events_have_half_of_the_seats() {
        let seats = SeatLimits { total: 16, per_address: 8, patience: Duration::ZERO };
        let feed = EventFeed::for_seats(seats);
        let open = || feed.0.places.take_place(OrganizationId::generate(), KeyId::generate());
        let _open: Vec<_> = (0..8).map(|_| open().unwrap()).collect();
        assert_eq!(open().unwrap_err().kind(), ErrorKind::ServiceUnavailable);
    }

    #[tokio::test]
    async fn a_panic_while_events_are_read_ends_no_stream() {
        let database: Arc<dyn Events> = Arc::new(PanickingEvents::default());
        let feed = open_feed();
        let stream = feed.open(OrganizationId::generate(), KeyId::generate(), &database).unwrap();
        let mut newest = stream.subscribe();
        let reading = newest.wait_for(|newest| *newest == ONLY);
        let read = tokio::time::timeout(Duration::from_secs(60), reading).await.expect("the reader goes on");
        assert_eq!(*read.unwrap(), ONLY);
        assert!(matches!(stream.after(0), Recent::Events(events) if events.len() == 1));
    }

    #[tokio::test]
    async fn a_key_has_its_number_of_streams_and_the_reader_ends_with_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(test_settings(folder.path())).await.unwrap();
        let feed = open_feed();
        let organization = OrganizationId::generate();
        let (key, other) = (KeyId::generate(), KeyId::generate());
        let open = |key| feed.open(organization, key, &store.events);
        let mut streams: Vec<StreamPermit> = (0..MAX_STREAMS_PER_KEY).map(|_| open(key).unwrap()).collect();
        let refused = open(key).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::TooManyRequests);
        assert_eq!(refused.data().unwrap()["code"], json!("TOO_MANY_STREAMS"));
        drop(open(other).unwrap());
        streams.pop();
        streams.push(open(key).unwrap());
        drop(streams);
        let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
        while feed.state().has_reader {
            assert!(tokio::time::Instant::now() < deadline, "the reader goes on");
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn a_position_before_the_memory_is_read_from_the_database() {
        let feed = open_feed();
        feed.state().begin = 7;
        let stream = StreamPermit {
            feed: feed.clone(),
            _place: feed.0.places.take_place(OrganizationId::generate(), KeyId::generate()).unwrap(),
            restores: 0,
        };
        assert!(matches!(stream.after(6), Recent::UpTo(7)));
        assert!(matches!(stream.after(7), Recent::Events(events) if events.is_empty()));
        feed.state().restores = 1;
        assert!(matches!(stream.after(7), Recent::Restored));
    }
}
