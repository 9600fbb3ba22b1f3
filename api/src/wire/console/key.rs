//! API keys.

use photofinish_store::model::ids::KeyId;
use photofinish_store::model::key::{Key as Stored, KeyMode, Scope};
use photofinish_store::model::rate::{RateClass, RateLimits};
use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use utoipa::ToSchema;
use utoipa::openapi::schema::{Array, ArrayBuilder, Object};
use uuid::Uuid;

use crate::validate::input::{Fields, Input, nested};
use crate::validate::validators::{Integer, ListOf, OneOf, text, uuid};
use crate::wire::{Output, sample, string_enum};

/// The largest limit, units a minute.
const MAX_LIMIT: u32 = 1_000_000;

const MODES: [KeyMode; 2] = [KeyMode::Test, KeyMode::Live];

/// An API key, without its secret.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Key {
    id: Uuid,
    label: String,
    #[schema(schema_with = mode_schema)]
    mode: String,
    /// How it begins.
    hint: String,
    #[schema(schema_with = scopes_schema)]
    scopes: Vec<String>,
    limits: LimitsOfKey,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
    #[schema(required)]
    #[serde(with = "time::serde::rfc3339::option")]
    last_used_at: Option<OffsetDateTime>,
    #[schema(required)]
    #[serde(with = "time::serde::rfc3339::option")]
    expires_at: Option<OffsetDateTime>,
    #[schema(required)]
    #[serde(with = "time::serde::rfc3339::option")]
    revoked_at: Option<OffsetDateTime>,
}

/// Limits of a key of its own, units a minute; 0 for no limit. Those of the service where there is none.
#[derive(Serialize, ToSchema)]
pub(crate) struct LimitsOfKey {
    /// Of requests that read.
    #[schema(required, value_type = Option<f64>)]
    read: Option<u32>,
    /// Of requests that create, change and delete.
    #[schema(required, value_type = Option<f64>)]
    manage: Option<u32>,
    /// Of photos that are signed and confirmed.
    #[schema(required, value_type = Option<f64>)]
    upload: Option<u32>,
    /// Of searches.
    #[schema(required, value_type = Option<f64>)]
    search: Option<u32>,
}

impl From<RateLimits> for LimitsOfKey {
    fn from(limits: RateLimits) -> Self {
        Self {
            read: limits.get(RateClass::Read),
            manage: limits.get(RateClass::Manage),
            upload: limits.get(RateClass::Upload),
            search: limits.get(RateClass::Search),
        }
    }
}

/// Returns the schema of a mode.
pub(super) fn mode_schema() -> Object {
    string_enum(MODES.map(KeyMode::as_str))
}

fn scopes_schema() -> Array {
    ArrayBuilder::new().items(string_enum(Scope::ALL.map(Scope::as_str))).build()
}

impl From<Stored> for Key {
    fn from(stored: Stored) -> Self {
        Self {
            id: stored.id.0,
            label: stored.label,
            mode: stored.tenant.mode.as_str().to_owned(),
            hint: stored.hint,
            scopes: stored.scopes.iter().map(|scope| scope.as_str().to_owned()).collect(),
            limits: stored.limits.into(),
            created_at: stored.created_at,
            last_used_at: stored.last_used_at,
            expires_at: stored.expires_at,
            revoked_at: stored.revoked_at,
        }
    }
}

impl Key {
    fn example() -> Self {
        Self {
            id: sample::KEY.0,
            label: "gate 3".to_owned(),
            mode: "live".to_owned(),
            hint: "svc_live_4fQ2aB".to_owned(),
            scopes: Scope::ALL.map(|scope| scope.as_str().to_owned()).to_vec(),
            limits: RateLimits::default().into(),
            created_at: sample::TIME,
            last_used_at: None,
            expires_at: None,
            revoked_at: None,
        }
    }
}

/// The keys of the organization, newest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeyList {
    keys: Vec<Key>,
    /// Always null: one page has all.
    #[schema(required)]
    next_cursor: Option<String>,
    #[schema(value_type = f64, minimum = 0)]
    total: usize,
}

impl KeyList {
    pub(crate) fn of_all(keys: Vec<Key>) -> Self {
        Self { total: keys.len(), keys, next_cursor: None }
    }
}

impl Output for KeyList {
    fn example() -> Self {
        Self::of_all(vec![Key::example()])
    }
}

/// A new key, which is shown this once.
#[derive(Serialize, ToSchema)]
pub(crate) struct CreatedKey {
    /// The secret. It is not shown again.
    pub(crate) key: String,
    #[serde(flatten)]
    pub(crate) details: Key,
}

impl Output for CreatedKey {
    fn example() -> Self {
        Self { key: "svc_live_..".to_owned(), details: Key::example() }
    }
}

/// Limits of a key of its own.
pub(crate) struct KeyLimits(pub(crate) RateLimits);

impl Input for KeyLimits {
    const NAME: &'static str = "KeyLimits";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let units = || Integer { min: 0, max: MAX_LIMIT };
        let read = fields.optional("read", "Of requests that read.", units());
        let manage = fields.optional("manage", "Of requests that create, change and delete.", units());
        let upload = fields.optional("upload", "Of photos that are signed and confirmed.", units());
        let search = fields.optional("search", "Of searches.", units());
        let mut limits = RateLimits::default();
        let classes = [RateClass::Read, RateClass::Manage, RateClass::Upload, RateClass::Search];
        for (class, limit) in classes.into_iter().zip([read, manage, upload, search]) {
            limit.into_iter().for_each(|limit| limits.set(class, limit));
        }
        Some(Self(limits))
    }

    fn example() -> Value {
        json!({ "search": 600 })
    }
}

/// Body of `keys/create`.
pub(crate) struct CreateKey {
    pub(crate) label: String,
    pub(crate) mode: KeyMode,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) expires_in_days: Option<u32>,
    pub(crate) limits: RateLimits,
}

impl Input for CreateKey {
    const NAME: &'static str = "CreateKey";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let label = fields.optional("label", "A name for people.", text(0, 200));
        let mode = OneOf { choices: &MODES, to_name: KeyMode::as_str };
        let mode = fields.required("mode", "Which environment it is for.", mode);
        let scope = OneOf { choices: &Scope::ALL, to_name: Scope::as_str };
        let scopes = fields.required("scopes", "What it permits.", ListOf { item: scope, min: 1, max: 3 });
        let days = Integer { min: 1, max: 3650 };
        let expires_in_days = fields.optional("expiresInDays", "After how many days it expires.", days);
        let limits = "Units that it may spend in a minute, by class; 0 for no limit. Those of the service where none is given.";
        let limits = fields.optional("limits", limits, nested::<KeyLimits>());
        let limits = limits.map(|KeyLimits(limits)| limits).unwrap_or_default();
        let label = label.unwrap_or_default();
        Some(Self { label, mode: mode?, scopes: scopes?, expires_in_days, limits })
    }

    fn example() -> Value {
        json!({ "label": "gate 3", "mode": "live", "scopes": ["search:read"] })
    }
}

/// Body of `keys/revoke`.
pub(crate) struct RevokeKey {
    pub(crate) key: KeyId,
}

impl Input for RevokeKey {
    const NAME: &'static str = "RevokeKey";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self { key: fields.required("keyId", "The key.", uuid())? })
    }

    fn example() -> Value {
        json!({ "keyId": sample::KEY })
    }
}
