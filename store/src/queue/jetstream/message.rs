//! What a message says: the name of one turn of one photo. Knows nothing of how it travels.

use crate::model::ids::{AlbumId, PhotoId};
use crate::traits::{PhotoRef, UnpublishedPhoto};

/// The text of a message: album, photo and turn. It is the message's id too, by which the stream drops a second copy:
/// a photo that is queued anew (retried, reprocessed) has another turn and so another id.
pub(crate) fn encode(named: &UnpublishedPhoto) -> String {
    let PhotoRef { album, photo } = named.photo;
    format!("{album}/{photo}/{}", named.confirmed_at)
}

/// What a message names; `None` when it is not one of ours.
pub(crate) fn decode(text: &[u8]) -> Option<UnpublishedPhoto> {
    let mut parts = std::str::from_utf8(text).ok()?.split('/');
    let album: AlbumId = parts.next()?.parse().ok()?;
    let photo: PhotoId = parts.next()?.parse().ok()?;
    let confirmed_at = parts.next()?.parse().ok()?;
    if parts.next().is_some() {
        return None;
    }
    Some(UnpublishedPhoto { photo: PhotoRef { album, photo }, confirmed_at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_decodes_to_what_was_encoded() {
        let photo = PhotoRef { album: AlbumId::generate(), photo: PhotoId::generate() };
        let named = UnpublishedPhoto { photo, confirmed_at: 1_754_000_000_123_456 };
        let text = encode(&named);
        assert_eq!(decode(text.as_bytes()), Some(named));
        let again = UnpublishedPhoto { confirmed_at: named.confirmed_at + 1, ..named };
        assert_ne!(encode(&again), text);
    }

    #[test]
    fn an_unknown_message_decodes_to_nothing() {
        let id = AlbumId::generate();
        let texts = ["".into(), format!("{id}/{id}"), format!("{id}/{id}/x"), format!("{id}/{id}/1/2")];
        for text in texts {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
        assert_eq!(decode(&[0xff, 0xfe]), None);
    }
}
