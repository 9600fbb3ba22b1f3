//! Events: what partners are told of their albums. Thin on purpose: ids, reasons and counts, so that there is nothing in an
//! event to erase.

use std::time::Duration;

use serde_json::{Map, Value};
use time::OffsetDateTime;

use crate::model::album::Tenant;
use crate::model::ids::{AlbumId, EventId};

/// What happened. The list may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Photos can be found by searches.
    PhotoReady,
    /// Photos have failed for good.
    PhotoFailed,
    /// No photo of an album is queued or processing, for ten seconds now.
    AlbumIdle,
    /// An album was deleted.
    AlbumDeleted,
    /// A webhook was disabled by the service.
    WebhookDisabled,
    /// The credits of the tenant have become low.
    CreditsLow,
    /// Faces or a bib of an album were erased.
    PersonErased,
    /// Faces or photos of an album will be erased by its retention, in a week.
    AlbumExpiring,
}

impl EventType {
    /// Every type.
    pub const ALL: [Self; 8] = [
        Self::PhotoReady,
        Self::PhotoFailed,
        Self::AlbumIdle,
        Self::AlbumDeleted,
        Self::WebhookDisabled,
        Self::CreditsLow,
        Self::PersonErased,
        Self::AlbumExpiring,
    ];

    /// Its name on the wire and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PhotoReady => "photo.ready",
            Self::PhotoFailed => "photo.failed",
            Self::AlbumIdle => "album.idle",
            Self::AlbumDeleted => "album.deleted",
            Self::WebhookDisabled => "webhook.disabled",
            Self::CreditsLow => "credits.low",
            Self::PersonErased => "person.erased",
            Self::AlbumExpiring => "album.expiring",
        }
    }

    /// Whether it is told only to keys that manage albums.
    pub const fn is_for_managers(self) -> bool {
        matches!(self, Self::CreditsLow | Self::PersonErased)
    }
}

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Its place among all events: rises in the order in which they became visible.
    pub sequence: i64,
    /// Its id.
    pub id: EventId,
    /// Whom it is told.
    pub tenant: Tenant,
    /// A name of [`EventType`], or of a type that a newer version writes.
    pub event_type: String,
    /// The album that it is about.
    pub album: Option<AlbumId>,
    /// More about it.
    pub data: Map<String, Value>,
    /// When it happened, microsecond precision.
    pub created_at: OffsetDateTime,
}

/// Which events of a tenant to list.
#[derive(Clone, Debug)]
pub struct EventQuery {
    /// Those after this sequence.
    pub after: i64,
    /// Those of these types; all if empty.
    pub types: Vec<EventType>,
    /// Those of this album.
    pub album: Option<AlbumId>,
    /// At most this many.
    pub limit: u32,
}

/// Some events of a tenant, oldest first.
#[derive(Clone, Debug)]
pub struct EventPage {
    /// The events.
    pub events: Vec<Event>,
    /// The sequence up to which these are all: the next page begins after it.
    pub up_to: i64,
}

/// Events that someone asks for and that are no longer there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventLoss {
    /// The sequence after which the events begin that are still there.
    pub resume_after: i64,
    /// When the oldest of them happened; `None` if there is none.
    pub oldest: Option<OffsetDateTime>,
}

/// What one turn of the publisher did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishedEvents {
    /// How many events it published.
    pub events: u64,
    /// Whether more are to be published at once.
    pub has_more: bool,
}

/// Which changes of an album are kept although they were published, for the face indexes of all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptChanges {
    /// The last ones, this many at least.
    pub least: u32,
    /// At most this many.
    pub most: u32,
    /// Of those between the two: changes whose photos settled within this time.
    pub recent: Duration,
}

impl KeptChanges {
    /// What the service keeps. Face indexes read what is new every 20 s, and a process that is further behind reads the album, with
    /// all its faces. Commits of many workers on one album have a photo or two each, a few hundred a second: two minutes of 500 a
    /// second are kept.
    pub const OF_SERVICE: Self = Self { least: 4096, most: 60_000, recent: Duration::from_secs(120) };
}
