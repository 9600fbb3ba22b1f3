//! The names of objects in storage. The only place that builds their paths.

use std::fmt;
use std::str::FromStr;

use crate::model::ids::{AlbumId, OrganizationId, PhotoId, ProbeId, WatermarkUploadId};

/// The name of one object, for example `o/<organization>/a/<album>/p/<photo>/original`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ObjectKey(String);

/// What an upload under a key would be stored for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadTarget {
    /// A photo, in any state, or a selfie that was not examined yet.
    Open,
    /// A selfie that has its embedding or was refused: no search would read the bytes.
    UsedProbe,
    /// No photo and no selfie, or an expired one, or one of an album that is being deleted.
    Missing,
}

/// Which of a photo's objects it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectRole {
    /// The bytes as the partner sent them.
    Original,
    /// The upright JPEG that a search hit's `url` names.
    Preview,
    /// The upright JPEG that a search hit's `thumbnailUrl` names.
    Thumbnail,
    /// The preview with the album's watermark.
    Marked,
}

impl ObjectRole {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Original, Self::Preview, Self::Thumbnail, Self::Marked];
}

/// The owner of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectOwner {
    /// A photo.
    Photo(PhotoId, ObjectRole),
    /// A selfie.
    Probe(ProbeId),
    /// A picture that may become the watermark of its album.
    Watermark(WatermarkUploadId),
}

/// The first part of every key.
pub(crate) const KEY_ROOT: &str = "o";

impl ObjectKey {
    /// Returns the key of an object of a photo.
    pub fn photo(organization: OrganizationId, album: AlbumId, photo: PhotoId, role: ObjectRole) -> Self {
        let name = match role {
            ObjectRole::Original => "original",
            ObjectRole::Preview => "preview.jpg",
            ObjectRole::Thumbnail => "thumbnail.jpg",
            ObjectRole::Marked => "marked.jpg",
        };
        Self(format!("{}/p/{photo}/{name}", Self::album_prefix(organization, album)))
    }

    /// Returns the key of a selfie.
    pub fn probe(organization: OrganizationId, album: AlbumId, probe: ProbeId) -> Self {
        Self(format!("{}/s/{probe}", Self::album_prefix(organization, album)))
    }

    /// Returns the key of a picture that was uploaded as a watermark. It is read once.
    pub fn watermark(organization: OrganizationId, album: AlbumId, upload: WatermarkUploadId) -> Self {
        Self(format!("{}/w/{upload}", Self::album_prefix(organization, album)))
    }

    /// Returns organization, album and owner of an object; `None` for a key that this type does not build.
    pub fn owner(&self) -> Option<(OrganizationId, AlbumId, ObjectOwner)> {
        let parts: Vec<&str> = self.0.split('/').collect();
        let [KEY_ROOT, organization, "a", album, kind, rest @ ..] = parts.as_slice() else { return None };
        let (organization, album) = (parse_id(organization)?, parse_id(album)?);
        let (owner, canonical) = match (*kind, rest) {
            ("p", [photo, name]) => {
                let photo = parse_id(photo)?;
                let key_of = |role| Self::photo(organization, album, photo, role);
                let role = ObjectRole::ALL
                    .into_iter()
                    .find(|role| key_of(*role).0.ends_with(&format!("/{name}")))?;
                (ObjectOwner::Photo(photo, role), key_of(role))
            }
            ("s", [probe]) => {
                let probe = parse_id(probe)?;
                (ObjectOwner::Probe(probe), Self::probe(organization, album, probe))
            }
            ("w", [upload]) => {
                let upload = parse_id(upload)?;
                (ObjectOwner::Watermark(upload), Self::watermark(organization, album, upload))
            }
            _ => return None,
        };
        // Ids can be written in other ways than the one that keys use.
        (canonical == *self).then_some((organization, album, owner))
    }

    /// Returns the prefix of all objects of an organization, without a slash at the end.
    pub fn organization_prefix(organization: OrganizationId) -> String {
        format!("{KEY_ROOT}/{organization}")
    }

    /// Returns the prefix of all objects of an album, without a slash at the end.
    pub fn album_prefix(organization: OrganizationId, album: AlbumId) -> String {
        format!("{}/a/{album}", Self::organization_prefix(organization))
    }

    /// Parses a path of ASCII letters, digits, `-`, `.` and `/`, without parts that are empty or begin with a dot.
    pub fn parse(path: &str) -> Option<Self> {
        let is_valid = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'.')
        };
        path.split('/').all(is_valid).then(|| Self(path.to_owned()))
    }

    /// Returns the media type that it is served with: `image/jpeg` for what the pipeline wrote, `application/octet-stream`
    /// for what a partner uploaded, which no browser may render as a page.
    pub fn content_type(&self) -> &'static str {
        if self.0.ends_with(".jpg") { "image/jpeg" } else { "application/octet-stream" }
    }

    /// Returns the path, without a leading slash.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn parse_id<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_its_owner() {
        let (organization, album) = (OrganizationId::generate(), AlbumId::generate());
        let (photo, probe) = (PhotoId::generate(), ProbeId::generate());
        for role in ObjectRole::ALL {
            let key = ObjectKey::photo(organization, album, photo, role);
            assert_eq!(key.owner(), Some((organization, album, ObjectOwner::Photo(photo, role))));
        }
        let key = ObjectKey::probe(organization, album, probe);
        assert_eq!(key.owner(), Some((organization, album, ObjectOwner::Probe(probe))));
        let upload = WatermarkUploadId::generate();
        let key = ObjectKey::watermark(organization, album, upload);
        assert_eq!(key.owner(), Some((organization, album, ObjectOwner::Watermark(upload))));
    }

    #[test]
    fn other_keys_have_no_owner() {
        let key = ObjectKey::probe(OrganizationId::generate(), AlbumId::generate(), ProbeId::generate());
        let text = key.as_str();
        let others = [
            text.to_uppercase(),
            text.replace('-', ""),
            format!("{text}/original"),
            text.replace("/s/", "/p/"),
            text.replace("/s/", "/x/"),
            format!("x{text}"),
            "check/writable".to_owned(),
        ];
        for other in others {
            assert_eq!(ObjectKey::parse(&other).and_then(|key| key.owner()), None, "{other}");
        }
    }
}
