//! The text of a message: the name of one round of one photo. Knows nothing of how messages travel.

use crate::model::ids::{AlbumId, PhotoId};
use crate::traits::{PhotoRef, UnpublishedPhoto};

/// Returns the text of a message: album, photo and round. It is also the message's id, by which the stream drops a
/// second copy: a photo that is queued again (retried, reprocessed) has another round and thus another id.
pub(super) fn encode(queued: &UnpublishedPhoto) -> String {
    let PhotoRef { album, photo } = queued.photo;
    format!("{album}/{photo}/{}", queued.confirmed_at)
}

/// Returns what a message names; `None` if its text was not made by [`encode`].
pub(super) fn decode(text: &[u8]) -> Option<UnpublishedPhoto> {
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
        let queued = UnpublishedPhoto { photo, confirmed_at: 1_754_000_000_123_456 };
        let text = encode(&queued);
        assert_eq!(decode(text.as_bytes()), Some(queued));
        let queued_again = UnpublishedPhoto { confirmed_at: queued.confirmed_at + 1, ..queued };
        assert_ne!(encode(&queued_again), text);
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
