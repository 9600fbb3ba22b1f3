//! Where objects lie in storage. The only place that spells a path.

use std::fmt;

use crate::ids::{AlbumId, OrganizationId, PhotoId, ProbeId};

/// The name of one object, for example `o/<organization>/a/<album>/p/<photo>/original`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ObjectKey(String);

/// What an object holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectRole {
    /// The bytes as the partner sent them.
    Original,
    /// The upright JPEG that a search hit's `url` names.
    Preview,
    /// The upright JPEG that a search hit's `thumbnailUrl` names.
    Thumbnail,
}

impl ObjectKey {
    /// An object of a photo.
    pub fn photo(organization: OrganizationId, album: AlbumId, photo: PhotoId, role: ObjectRole) -> Self {
        let name = match role {
            ObjectRole::Original => "original",
            ObjectRole::Preview => "preview.jpg",
            ObjectRole::Thumbnail => "thumbnail.jpg",
        };
        Self(format!("{}/p/{photo}/{name}", Self::album_prefix(organization, album)))
    }

    /// The bytes of a selfie.
    pub fn probe(organization: OrganizationId, album: AlbumId, probe: ProbeId) -> Self {
        Self(format!("{}/s/{probe}", Self::album_prefix(organization, album)))
    }

    /// What every object of an album begins with, no slash at the end.
    pub fn album_prefix(organization: OrganizationId, album: AlbumId) -> String {
        format!("o/{organization}/a/{album}")
    }

    /// A key from a path as this type spells them: ASCII letters, digits, `-`, `.`, `/`, no empty or dotted parts.
    pub fn parse(path: &str) -> Option<Self> {
        let plain = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
        };
        path.split('/').all(plain).then(|| Self(path.to_owned()))
    }

    /// The media type it is sent as: `image/jpeg` for what the pipeline wrote, `application/octet-stream` for what a
    /// partner sent, which a browser must never take for a page.
    pub fn served_as(&self) -> &'static str {
        if self.0.ends_with(".jpg") { "image/jpeg" } else { "application/octet-stream" }
    }

    /// The path, no slash in front.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
