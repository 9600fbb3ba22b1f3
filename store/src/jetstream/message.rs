//! What a message says: the name of one turn of one photo. Knows nothing of how it travels.

use crate::ids::{AlbumId, PhotoId};
use crate::traits::{PhotoRef, Unpublished};

/// The text of a message: album, photo and turn. It is the message's id too, by which the stream drops a second copy:
/// a photo that is queued anew (retried, reprocessed) has another turn and so another id.
pub(super) fn text_of(named: &Unpublished) -> String {
    let PhotoRef { album, photo } = named.photo;
    format!("{album}/{photo}/{}", named.confirmed_at)
}

/// What a message names; `None` when it is not one of ours.
pub(super) fn read(text: &[u8]) -> Option<Unpublished> {
    let mut parts = std::str::from_utf8(text).ok()?.split('/');
    let album: AlbumId = parts.next()?.parse().ok()?;
    let photo: PhotoId = parts.next()?.parse().ok()?;
    let confirmed_at = parts.next()?.parse().ok()?;
    if parts.next().is_some() {
        return None;
    }
    Some(Unpublished { photo: PhotoRef { album, photo }, confirmed_at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_what_it_was_made_of() {
        let photo = PhotoRef { album: AlbumId::generate(), photo: PhotoId::generate() };
        let named = Unpublished { photo, confirmed_at: 1_754_000_000_123_456 };
        let text = text_of(&named);
        assert_eq!(read(text.as_bytes()), Some(named));
        let again = Unpublished { confirmed_at: named.confirmed_at + 1, ..named };
        assert_ne!(text_of(&again), text);
    }

    #[test]
    fn what_is_not_ours_names_nothing() {
        let id = AlbumId::generate();
        let texts = ["".into(), format!("{id}/{id}"), format!("{id}/{id}/x"), format!("{id}/{id}/1/2")];
        for text in texts {
            assert_eq!(read(text.as_bytes()), None, "{text}");
        }
        assert_eq!(read(&[0xff, 0xfe]), None);
    }
}
