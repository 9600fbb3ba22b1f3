//! Where objects lie in storage. The only place that spells a path.

use std::fmt;
use std::str::FromStr;

use crate::model::ids::{AlbumId, OrganizationId, PhotoId, ProbeId};

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

/// Whose an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectOwner {
    /// A photo's.
    Photo(PhotoId, ObjectRole),
    /// A selfie.
    Probe(ProbeId),
}

/// What every key begins with.
pub(crate) const KEY_ROOT: &str = "o";

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

    /// Organization, album and owner of an object; `None` for a key that this type does not make.
    pub fn owner(&self) -> Option<(OrganizationId, AlbumId, ObjectOwner)> {
        let parts: Vec<&str> = self.0.split('/').collect();
        let [KEY_ROOT, organization, "a", album, kind, rest @ ..] = parts.as_slice() else { return None };
        let (organization, album) = (parse_id(organization)?, parse_id(album)?);
        let (owner, made) = match (*kind, rest) {
            ("p", [photo, name]) => {
                let roles = [ObjectRole::Original, ObjectRole::Preview, ObjectRole::Thumbnail];
                let photo = parse_id(photo)?;
                let of = |role| Self::photo(organization, album, photo, role);
                let role = roles.into_iter().find(|role| of(*role).0.ends_with(&format!("/{name}")))?;
                (ObjectOwner::Photo(photo, role), of(role))
            }
            ("s", [probe]) => {
                let probe = parse_id(probe)?;
                (ObjectOwner::Probe(probe), Self::probe(organization, album, probe))
            }
            _ => return None,
        };
        // Ids have more spellings than the one that keys are made of.
        (made == *self).then_some((organization, album, owner))
    }

    /// What every object of an album begins with, no slash at the end.
    pub fn album_prefix(organization: OrganizationId, album: AlbumId) -> String {
        format!("{KEY_ROOT}/{organization}/a/{album}")
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
    pub fn content_type(&self) -> &'static str {
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
        for role in [ObjectRole::Original, ObjectRole::Preview, ObjectRole::Thumbnail] {
            let key = ObjectKey::photo(organization, album, photo, role);
            assert_eq!(key.owner(), Some((organization, album, ObjectOwner::Photo(photo, role))));
        }
        let key = ObjectKey::probe(organization, album, probe);
        assert_eq!(key.owner(), Some((organization, album, ObjectOwner::Probe(probe))));
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
