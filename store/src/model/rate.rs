//! How many requests a key may make.

use serde::{Deserialize, Serialize};

use crate::model::ids::KeyId;

/// Requests that share a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateClass {
    /// What only reads albums, photos, events and the like.
    Read,
    /// What changes albums, webhooks and the like.
    Manage,
    /// Uploads and their confirmations.
    Upload,
    /// Searches.
    Search,
}

impl RateClass {
    /// Every class.
    pub const ALL: [Self; 4] = [Self::Read, Self::Manage, Self::Upload, Self::Search];

    /// Its name on the wire, in settings and in the database.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Manage => "manage",
            Self::Upload => "upload",
            Self::Search => "search",
        }
    }
}

/// Limits by class, units a minute; 0 for none. A class without an entry has the limit of whatever comes next: the
/// service's after those of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateLimits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    read: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    manage: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    upload: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    search: Option<u32>,
}

impl RateLimits {
    /// The limits of a service that does not set its own.
    pub const SERVICE: Self =
        Self { read: Some(600), manage: Some(120), upload: Some(6000), search: Some(1200) };

    /// Whether no class has an entry.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The entry of a class.
    pub fn get(&self, class: RateClass) -> Option<u32> {
        match class {
            RateClass::Read => self.read,
            RateClass::Manage => self.manage,
            RateClass::Upload => self.upload,
            RateClass::Search => self.search,
        }
    }

    /// Sets the entry of a class.
    pub fn set(&mut self, class: RateClass, limit: u32) {
        let entry = match class {
            RateClass::Read => &mut self.read,
            RateClass::Manage => &mut self.manage,
            RateClass::Upload => &mut self.upload,
            RateClass::Search => &mut self.search,
        };
        *entry = Some(limit);
    }

    /// These limits, with those of `others` where a class has no entry.
    #[must_use]
    pub fn or(mut self, others: &Self) -> Self {
        for class in RateClass::ALL {
            if let (None, Some(limit)) = (self.get(class), others.get(class)) {
                self.set(class, limit);
            }
        }
        self
    }
}

/// A part of a limit that a process wants to have for itself.
#[derive(Clone, Copy, Debug)]
pub struct RateShare {
    /// Whose limit.
    pub key: KeyId,
    /// Which of them.
    pub class: RateClass,
    /// When the minute begins, seconds since 1970.
    pub begins: i64,
    /// How much.
    pub units: u32,
    /// Up to this much for all processes together.
    pub limit: u32,
}
