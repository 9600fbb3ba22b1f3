//! Sessions of accounts.

use photofinish_store::model::account::Session as Stored;
use photofinish_store::model::ids::SessionId;
use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use utoipa::ToSchema;
use utoipa::openapi::schema::{Array, ArrayBuilder, Object};
use uuid::{Uuid, uuid as uuid_of};

use super::account::{Account, read_email};
use super::key::mode_schema;
use crate::validate::input::{Fields, Input};
use crate::validate::validators::{text, uuid};
use crate::wire::{Output, sample, string_enum};

const SAMPLE_SESSION: Uuid = uuid_of!("01932c10-87b9-74c8-8c91-a5d6e7f8091a");

/// An organization.
#[derive(Clone, Serialize, ToSchema)]
pub(crate) struct Organization {
    pub(crate) id: Uuid,
    pub(crate) name: String,
}

/// How long a session lasts.
#[derive(Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionTimes {
    pub(crate) id: Uuid,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) created_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) expires_at: OffsetDateTime,
}

/// Who is signed in, and what the console has to know of the service.
#[derive(Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Session {
    pub(crate) account: Account,
    pub(crate) organization: Organization,
    pub(crate) session: SessionTimes,
    #[schema(schema_with = environment_schema)]
    pub(crate) environment: String,
    /// The modes in which it can work.
    #[schema(schema_with = modes_schema)]
    pub(crate) modes: Vec<String>,
    /// The version of the service.
    pub(crate) version: String,
    /// What a photo may be declared as.
    pub(crate) media_types: Vec<String>,
    /// The largest photo.
    #[schema(value_type = f64, minimum = 0)]
    pub(crate) max_photo_bytes: u64,
}

fn environment_schema() -> Object {
    string_enum(["local", "sandbox", "production"])
}

fn modes_schema() -> Array {
    ArrayBuilder::new().items(mode_schema()).build()
}

impl Output for Session {
    fn example() -> Self {
        Self {
            account: Account::example(),
            organization: Organization { id: sample::ORGANIZATION.0, name: "Lake Timing".to_owned() },
            session: SessionTimes { id: SAMPLE_SESSION, created_at: sample::TIME, expires_at: sample::TIME },
            environment: "production".to_owned(),
            modes: vec!["live".to_owned()],
            version: "0.1.0".to_owned(),
            media_types: vec!["image/jpeg".to_owned()],
            max_photo_bytes: 50_000_000,
        }
    }
}

/// One of the sessions of an account.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListedSession {
    id: Uuid,
    /// The browser, as it names itself.
    device: String,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    last_seen_at: OffsetDateTime,
    /// Whether it is the one that asks.
    current: bool,
}

/// The sessions of an account, newest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionList {
    sessions: Vec<ListedSession>,
    /// Always null: one page has all.
    #[schema(required)]
    next_cursor: Option<String>,
    #[schema(value_type = f64, minimum = 0)]
    total: usize,
}

impl SessionList {
    fn of_all(sessions: Vec<ListedSession>) -> Self {
        Self { total: sessions.len(), sessions, next_cursor: None }
    }

    pub(crate) fn new(stored: Vec<Stored>, current: SessionId) -> Self {
        let listed = stored.into_iter().map(|session| ListedSession {
            id: session.id.0,
            device: session.device,
            created_at: session.created_at,
            last_seen_at: session.last_seen_at,
            current: session.id == current,
        });
        Self::of_all(listed.collect())
    }
}

impl Output for SessionList {
    fn example() -> Self {
        let session = ListedSession {
            id: SAMPLE_SESSION,
            device: "Mozilla/5.0".to_owned(),
            created_at: sample::TIME,
            last_seen_at: sample::TIME,
            current: true,
        };
        Self::of_all(vec![session])
    }
}

/// Body of `session/create`.
pub(crate) struct CreateSession {
    pub(crate) email: String,
    pub(crate) password: String,
}

impl Input for CreateSession {
    const NAME: &'static str = "CreateSession";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let email = read_email(fields);
        let password = fields.required("password", "The password.", text(0, 1000));
        Some(Self { email: email?, password: password? })
    }

    fn example() -> Value {
        json!({ "email": "anna@race.example", "password": "four wet dogs run" })
    }
}

/// Body of `sessions/end`.
pub(crate) struct EndSession {
    pub(crate) session: SessionId,
}

impl Input for EndSession {
    const NAME: &'static str = "EndSession";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let session = fields.required("sessionId", "The session.", uuid());
        Some(Self { session: session? })
    }

    fn example() -> Value {
        json!({ "sessionId": SAMPLE_SESSION })
    }
}
