//! Downloads of many photos.

use std::time::Duration;

use crate::model::account::TokenDigest;
use crate::model::ids::{AlbumId, OrganizationId, PhotoId};
use crate::model::object_key::ObjectRole;

/// Which file of a photo is downloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DownloadFile {
    /// The preview.
    #[default]
    Preview,
    /// The preview with the album's watermark.
    Marked,
    /// The photo as it was uploaded.
    Original,
}

impl DownloadFile {
    /// Every file.
    pub const ALL: [Self; 3] = [Self::Preview, Self::Marked, Self::Original];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Preview => "preview",
            Self::Marked => "marked",
            Self::Original => "original",
        }
    }

    /// The object that has it.
    pub const fn role(self) -> ObjectRole {
        match self {
            Self::Preview => ObjectRole::Preview,
            Self::Marked => ObjectRole::Marked,
            Self::Original => ObjectRole::Original,
        }
    }
}

/// A download to permit.
#[derive(Clone, Debug)]
pub struct NewDownload {
    /// SHA-256 of the secret part of its address.
    pub digest: TokenDigest,
    /// Of which album.
    pub album: AlbumId,
    /// Which photos, in this order.
    pub photos: Vec<PhotoId>,
    /// Which of their files.
    pub file: DownloadFile,
    /// For how long.
    pub ttl: Duration,
}

/// A download that is permitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Download {
    /// The owner of the album.
    pub organization: OrganizationId,
    /// The album.
    pub album: AlbumId,
    /// Its title.
    pub title: String,
    /// Which photos, in this order.
    pub photos: Vec<PhotoId>,
    /// Which of their files.
    pub file: DownloadFile,
}
