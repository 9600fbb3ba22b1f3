//! Newtypes for every identifier, so that mixing up two kinds does not compile. All but [`FaceId`] are UUIDs; those that
//! this service makes are of version 7 and sort by creation time.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! id {
    ($(#[$doc:meta] $name:ident),+ $(,)?) => {$(
        #[$doc]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, sqlx::Type)]
        #[serde(transparent)]
        #[sqlx(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// Generates a new id that sorts after all earlier ones of this process.
            pub fn generate() -> Self {
                Self(Uuid::now_v7())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }
    )+};
}

/// A face of a photo: the key of its row, in the order of detection. Reading a photo again makes new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, sqlx::Type)]
#[sqlx(transparent)]
pub struct FaceId(pub i64);

id! {
    /// An organization: the owner of albums and keys.
    OrganizationId,
    /// An API key.
    KeyId,
    /// An album: one event.
    AlbumId,
    /// A photo of an album.
    PhotoId,
    /// A runner's selfie; `imageId` on the wire.
    ProbeId,
    /// One lease of one photo by one worker; fences `finish` and `fail`.
    LeaseId,
    /// A running process, from its start to its end.
    ProcessId,
    /// An event.
    EventId,
    /// A webhook.
    WebhookId,
    /// The delivery of an event to a webhook.
    DeliveryId,
    /// A grant of credits.
    GrantId,
    /// An erasure: its receipt has the same id.
    ErasureId,
    /// An account of a person.
    AccountId,
    /// A session of an account.
    SessionId,
    /// A picture that was uploaded as a watermark.
    WatermarkUploadId,
    /// A visitor's consent to the comparison of a selfie.
    ConsentId,
    /// What a visitor said of a photo.
    ReportId,
}
