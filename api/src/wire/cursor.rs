//! Opaque page cursors. They are hexadecimal of a fixed length, so that the document can describe them by a pattern and
//! every string that matches it is a valid cursor.

use std::cmp::Ordering;

use photofinish_store::model::ids::{AlbumId, PhotoId};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::validate::validators::{Text, formatted};

const ID_CURSOR_PATTERN: &str = "^[0-9a-f]{32}$";
/// With a total or without one; of no length that a cursor of another list has.
const PHOTO_CURSOR_PATTERN: &str = "^[0-9a-f]{32}([0-9a-f]{12})?$";
const ALBUM_CURSOR_PATTERN: &str = "^[0-9a-f]{40}$";
/// With a proof or without one.
const HIT_CURSOR_PATTERN: &str = "^[0-9a-f]{48}([0-9a-f]{32})?$";

/// Returns the validator of a cursor that contains the id of the last object of a page.
pub(crate) fn id_cursor() -> Text {
    formatted(32, ID_CURSOR_PATTERN, |text| decode_hex::<16>(text).map(drop))
}

/// Returns the validator of a cursor into a list of photos.
pub(crate) fn photo_cursor() -> Text {
    formatted(44, PHOTO_CURSOR_PATTERN, |text| {
        decode_hex::<16>(text).map(drop).or_else(|_| decode_hex::<22>(text).map(drop))
    })
}

/// Returns the validator of a cursor into a list of albums.
pub(crate) fn album_cursor() -> Text {
    formatted(40, ALBUM_CURSOR_PATTERN, |text| decode_hex::<20>(text).map(drop))
}

/// Returns the validator of a cursor into search results.
pub(crate) fn hit_cursor() -> Text {
    formatted(80, HIT_CURSOR_PATTERN, |text| {
        decode_hex::<24>(text).map(drop).or_else(|_| decode_hex::<40>(text).map(drop))
    })
}

/// Returns the validator of a position among events.
pub(crate) fn event_cursor() -> Text {
    formatted(32, ID_CURSOR_PATTERN, |text| decode_hex::<16>(text).map(drop))
}

/// Returns the cursor after an object.
pub(crate) fn encode_id(id: Uuid) -> String {
    id.simple().to_string()
}

/// Returns the id in a cursor; `None` for text that [`id_cursor`] refuses.
pub(crate) fn decode_id(text: &str) -> Option<Uuid> {
    decode_hex::<16>(text).ok().map(Uuid::from_bytes)
}

/// The position in a list of albums, with the number of albums on all pages: they are counted for the first page only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AlbumPosition {
    /// The last album of the page before.
    pub(crate) album: AlbumId,
    /// What the first page counted.
    pub(crate) total: u32,
}

impl AlbumPosition {
    /// Returns the cursor after this position.
    pub(crate) fn to_cursor(self) -> String {
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(&self.total.to_be_bytes());
        bytes[4..].copy_from_slice(self.album.0.as_bytes());
        hex::encode(bytes)
    }

    /// Returns the position in a cursor; `None` for text that [`album_cursor`] refuses.
    pub(crate) fn from_cursor(text: &str) -> Option<Self> {
        let bytes = decode_hex::<20>(text).ok()?;
        let (total, album) = bytes.split_first_chunk::<4>()?;
        Some(Self { total: u32::from_be_bytes(*total), album: AlbumId(Uuid::from_slice(album).ok()?) })
    }
}

/// The position in a list of photos, with their number on all pages where they are counted for the first page only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PhotoPosition {
    /// The last photo of the page before.
    pub(crate) photo: PhotoId,
    /// What the first page counted.
    pub(crate) total: Option<u32>,
}

impl PhotoPosition {
    /// Returns the cursor after this position.
    pub(crate) fn to_cursor(self) -> String {
        let total = self.total.map_or(String::new(), |total| format!("{total:012x}"));
        encode_id(self.photo.0) + &total
    }

    /// Returns the position in a cursor; `None` for text that [`photo_cursor`] refuses.
    pub(crate) fn from_cursor(text: &str) -> Option<Self> {
        let (photo, total) = text.split_at_checked(32)?;
        let total = match total {
            "" => None,
            total => {
                let [high @ .., a, b, c, d] = decode_hex::<6>(total).ok()?;
                Some(if high == [0, 0] { u32::from_be_bytes([a, b, c, d]) } else { u32::MAX })
            }
        };
        Some(Self { photo: PhotoId(decode_id(photo)?), total })
    }
}

/// The position of a hit in the results of a search: by descending score, then by photo id. That of a bib hit does not change
/// when photos are added, so a later page never repeats a hit of an earlier one. The score of a face hit depends on the others of
/// its album too: while photos become ready, one may come twice or not at all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HitPosition {
    /// Higher scores come first.
    pub(crate) score: f64,
    /// Among equal scores, older photos come first.
    pub(crate) photo: PhotoId,
}

impl HitPosition {
    /// The position before all hits. Where a hit has its photo, this one has until when its cursor is good.
    pub(crate) fn before_all(until: OffsetDateTime) -> Self {
        let seconds = until.unix_timestamp().unsigned_abs();
        Self { score: f64::INFINITY, photo: PhotoId(Uuid::from_u128(seconds.into())) }
    }

    /// Whether the first page begins there.
    pub(crate) fn is_before_all(&self) -> bool {
        self.score.total_cmp(&f64::INFINITY).is_eq()
    }

    /// Whether its cursor was good until a time that is over.
    pub(crate) fn is_over(&self, now: OffsetDateTime) -> bool {
        self.is_before_all() && self.photo.0.as_u128() <= u128::from(now.unix_timestamp().unsigned_abs())
    }

    /// Compares by rank: `Less` comes first.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        other.score.total_cmp(&self.score).then(self.photo.cmp(&other.photo))
    }

    /// Returns the cursor after this position.
    pub(crate) fn to_cursor(self) -> String {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.score.to_bits().to_be_bytes());
        bytes[8..].copy_from_slice(self.photo.0.as_bytes());
        hex::encode(bytes)
    }

    /// Returns the position in a cursor; `None` for text that [`hit_cursor`] refuses.
    pub(crate) fn from_cursor(text: &str) -> Option<Self> {
        let bytes = decode_hex::<24>(text).ok()?;
        let (score, photo) = bytes.split_first_chunk::<8>()?;
        let score = f64::from_bits(u64::from_be_bytes(*score));
        Some(Self { score, photo: PhotoId(Uuid::from_slice(photo).ok()?) })
    }
}

/// What a cursor into search results says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HitCursor {
    /// Where the page begins.
    pub(crate) position: HitPosition,
    /// Shows that the service gave this cursor with a page of the same search; `None` for a search that needs no proof.
    pub(crate) proof: Option<CursorProof>,
}

/// A part of a digest with a secret, of a search and a position.
pub(crate) type CursorProof = [u8; 16];

impl HitCursor {
    /// Returns the cursor in a text; `None` for text that [`hit_cursor`] refuses.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (position, proof) = text.split_at_checked(48)?;
        let proof = if proof.is_empty() { None } else { Some(decode_hex::<16>(proof).ok()?) };
        Some(Self { position: HitPosition::from_cursor(position)?, proof })
    }
}

/// The sequence of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventPosition(pub(crate) i64);

impl EventPosition {
    /// Returns the cursor after this position.
    pub(crate) fn to_cursor(self) -> String {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.0.to_be_bytes());
        hex::encode(bytes)
    }

    /// Returns the position in a cursor; `None` for text that [`event_cursor`] refuses.
    pub(crate) fn from_cursor(text: &str) -> Option<Self> {
        let bytes = decode_hex::<16>(text).ok()?;
        let (sequence, _) = bytes.split_first_chunk::<8>()?;
        // No event has a number below 1.
        Some(Self(i64::from_be_bytes(*sequence).max(0)))
    }
}

fn decode_hex<const N: usize>(text: &str) -> Result<[u8; N], String> {
    let invalid = || "must be a cursor that an earlier answer gave".to_owned();
    // The decoder also accepts upper case, which the pattern excludes.
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(invalid());
    }
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).map_err(|_| invalid())?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn positions_of_photos_round_trip_through_their_cursor(photo: u128, total: Option<u32>) {
            let position = PhotoPosition { photo: PhotoId(Uuid::from_u128(photo)), total };
            let cursor = position.to_cursor();
            prop_assert_eq!(PhotoPosition::from_cursor(&cursor), Some(position));
            let upper_case = cursor.replace(char::is_alphanumeric, "A");
            for refused in [format!("{cursor}0"), format!("{cursor}zz"), upper_case] {
                prop_assert_eq!(PhotoPosition::from_cursor(&refused), None);
            }
            let of_albums = AlbumPosition { album: AlbumId(position.photo.0), total: 2 }.to_cursor();
            prop_assert!(of_albums.len() != cursor.len(), "one of another list is refused");
        }

        #[test]
        fn positions_round_trip_through_their_cursor(bits: u64, photo: u128) {
            let position = HitPosition { score: f64::from_bits(bits), photo: PhotoId(Uuid::from_u128(photo)) };
            let parsed = HitPosition::from_cursor(&position.to_cursor()).unwrap();
            prop_assert_eq!(parsed.compare(&position), Ordering::Equal);
            prop_assert_eq!(HitCursor::parse(&position.to_cursor()).unwrap().proof, None);
            let proven = position.to_cursor() + &encode_id(position.photo.0);
            let proven = HitCursor::parse(&proven).unwrap();
            prop_assert_eq!(proven.proof, Some(position.photo.0.into_bytes()));
            prop_assert_eq!(proven.position.compare(&position), Ordering::Equal);
            prop_assert_eq!(decode_id(&encode_id(position.photo.0)), Some(position.photo.0));
            let album = AlbumPosition { album: AlbumId(position.photo.0), total: bits as u32 };
            prop_assert_eq!(AlbumPosition::from_cursor(&album.to_cursor()), Some(album));
            let event = EventPosition((bits >> 1) as i64);
            prop_assert_eq!(EventPosition::from_cursor(&event.to_cursor()), Some(event));
        }

        #[test]
        fn no_text_makes_a_cursor_panic(text: String) {
            prop_assert!(HitPosition::from_cursor(&text).is_none());
            prop_assert!(HitCursor::parse(&text).is_none());
            prop_assert!(AlbumPosition::from_cursor(&text).is_none());
            prop_assert!(EventPosition::from_cursor(&text).is_none());
            prop_assert!(PhotoPosition::from_cursor(&text).is_none());
            prop_assert!(decode_id(&text).is_none());
        }
    }

    #[test]
    fn hits_are_ordered_by_score_then_photo() {
        let position = |score, photo| HitPosition { score, photo: PhotoId(Uuid::from_u128(photo)) };
        let mut positions = [position(50.0, 3), position(90.0, 2), position(90.0, 1)];
        positions.sort_by(HitPosition::compare);
        assert_eq!(positions, [position(90.0, 1), position(90.0, 2), position(50.0, 3)]);
    }

    #[test]
    fn a_first_page_begins_before_all_hits_until_its_time_is_over() {
        let until = OffsetDateTime::UNIX_EPOCH + time::Duration::days(20_000);
        let first = HitPosition::from_cursor(&HitPosition::before_all(until).to_cursor()).unwrap();
        let best = HitPosition { score: 1e9, photo: PhotoId(Uuid::nil()) };
        assert_eq!(first.compare(&best), Ordering::Less);
        assert!(first.is_before_all() && !best.is_before_all());
        let is_over =
            |position: HitPosition, seconds| position.is_over(until + time::Duration::seconds(seconds));
        assert_eq!([is_over(first, -1), is_over(first, 0), is_over(best, 1)], [false, true, false]);
    }
}
