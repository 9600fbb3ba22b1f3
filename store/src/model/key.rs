//! API keys as they are stored: only a digest of the secret. The API defines the format of a key.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::model::album::Tenant;
use crate::model::ids::{KeyId, OrganizationId};
use crate::model::rate::RateLimits;

/// Which environment a key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyMode {
    /// `svc_test_`: sandbox.
    Test,
    /// `svc_live_`: production.
    Live,
}

impl KeyMode {
    /// `test` or `live`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Test => "test",
            Self::Live => "live",
        }
    }
}

/// What a key permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Scope {
    /// Querying runner faces and bib numbers.
    #[serde(rename = "search:read")]
    SearchRead,
    /// Presigned uploads, indexing, photo status.
    #[serde(rename = "photo:upload")]
    PhotoUpload,
    /// Creating and editing albums.
    #[serde(rename = "album:manage")]
    AlbumManage,
}

impl Scope {
    /// Every scope, in the order of the contract.
    pub const ALL: [Self; 3] = [Self::SearchRead, Self::PhotoUpload, Self::AlbumManage];

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SearchRead => "search:read",
            Self::PhotoUpload => "photo:upload",
            Self::AlbumManage => "album:manage",
        }
    }
}

/// SHA-256 of a key's full text. The key is 256 random bits, so no slow hash is needed.
pub type KeyDigest = [u8; 32];

/// A stored key.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// Its id: the `createdBy` of the albums that it creates.
    pub id: KeyId,
    /// Its organization and mode.
    pub tenant: Tenant,
    /// The organization's name.
    pub organization_name: String,
    /// A name for people.
    pub label: String,
    /// The visible beginning of the key, enough to recognise it.
    pub hint: String,
    /// What it permits.
    pub scopes: Vec<Scope>,
    /// Limits of its own.
    pub limits: RateLimits,
    /// When it was created.
    pub created_at: OffsetDateTime,
    /// When it was last used, to the minute.
    pub last_used_at: Option<OffsetDateTime>,
    /// From when on it is refused.
    pub expires_at: Option<OffsetDateTime>,
    /// When it was revoked.
    pub revoked_at: Option<OffsetDateTime>,
}

/// A key to create.
#[derive(Clone, Debug)]
pub struct NewKey {
    /// Its owner.
    pub organization: OrganizationId,
    /// Its mode.
    pub mode: KeyMode,
    /// A name for people.
    pub label: String,
    /// The visible beginning of the key.
    pub hint: String,
    /// What it permits.
    pub scopes: Vec<Scope>,
    /// Limits of its own.
    pub limits: RateLimits,
    /// From when on it is refused.
    pub expires_at: Option<OffsetDateTime>,
    /// The digest of the key's full text.
    pub digest: KeyDigest,
}
