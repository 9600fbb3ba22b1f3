//! Requests and responses of `events/*`.

use photofinish_store::model::event as stored;
use photofinish_store::model::event::EventType;
use photofinish_store::model::ids::AlbumId;
use serde::Serialize;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::{Output, sample};
use crate::validate::input::{Fields, Input};
use crate::validate::validators::{Integer, ListOf, OneOf, uuid};
use crate::wire::cursor::{EventPosition, event_cursor};

/// The most types that a request may name.
const MAX_TYPES: usize = 20;

/// Something that happened.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Event {
    /// The same wherever the event is told.
    #[schema(example = "evt_01932c0b32d47f739e4c508192a3b4c5")]
    id: String,
    /// What happened; the list may grow.
    #[serde(rename = "type")]
    #[schema(example = "album.idle")]
    event_type: String,
    /// When it happened.
    #[serde(with = "time::serde::rfc3339")]
    timestamp: OffsetDateTime,
    /// More about it, by its type. `sequence` rises in the order of an organization's events of one mode.
    #[schema(value_type = Object)]
    data: Map<String, Value>,
}

impl From<&stored::Event> for Event {
    fn from(event: &stored::Event) -> Self {
        let mut data = Map::from_iter([("sequence".to_owned(), Value::from(event.sequence))]);
        data.extend(event.data.clone());
        Self {
            id: format!("evt_{}", event.id.0.simple()),
            event_type: event.event_type.clone(),
            timestamp: event.created_at,
            data,
        }
    }
}

impl Event {
    /// Says in a stream that events are no longer there.
    pub(crate) fn lost(loss: &stored::EventLoss, now: OffsetDateTime) -> Self {
        use time::format_description::well_known::Rfc3339;
        // The years that a database has are all in this format.
        let oldest = loss.oldest.and_then(|oldest| oldest.format(&Rfc3339).ok());
        Self {
            id: format!("evt_{}", photofinish_store::model::ids::EventId::generate().0.simple()),
            event_type: "events.lost".to_owned(),
            timestamp: now,
            data: Map::from_iter([("oldest".to_owned(), Value::from(oldest))]),
        }
    }
}

/// A page of events, oldest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventPage {
    pub(crate) events: Vec<Event>,
    /// The cursor after these events. It is never null: ask with it again later for what has happened since.
    pub(crate) next_cursor: String,
}

impl Output for EventPage {
    fn example() -> Self {
        let data = json!({ "sequence": 18231, "albumId": sample::ALBUM, "total": 1480, "ready": 1477,
            "failed": 3, "awaitingUpload": 0 });
        let event = Event {
            id: format!("evt_{}", sample::EVENT.0.simple()),
            event_type: EventType::AlbumIdle.as_str().to_owned(),
            timestamp: sample::TIME,
            data: data.as_object().cloned().unwrap_or_default(),
        };
        Self { events: vec![event], next_cursor: EventPosition(18231).to_cursor() }
    }
}

/// Body of `events/list`.
pub(crate) struct ListEvents {
    pub(crate) after: Option<EventPosition>,
    pub(crate) limit: u32,
    pub(crate) types: Vec<EventType>,
    pub(crate) album: Option<AlbumId>,
}

impl Input for ListEvents {
    const NAME: &'static str = "ListEvents";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let limit = fields.optional_or("limit", "Events per page.", 100, Integer { min: 1, max: 500 });
        let description = "`nextCursor` of an earlier page, or the `id` of an event in a stream.";
        let after = fields.optional("cursor", description, event_cursor());
        let name = OneOf { choices: &EventType::ALL, to_name: EventType::as_str };
        let types = ListOf { item: name, min: 1, max: MAX_TYPES };
        let types = fields.optional("types", "Only events of these types.", types);
        let album = fields.optional("albumId", "Only events of this album.", uuid());
        let after = after.and_then(|text| EventPosition::from_cursor(&text));
        Some(Self { after, limit, types: types.unwrap_or_default(), album })
    }

    fn example() -> Value {
        json!({ "types": ["photo.ready", "album.idle"], "limit": 100 })
    }
}
