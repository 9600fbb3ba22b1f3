//! Opaque page cursors. Their texts are hexadecimal, so that the document can give their pattern and every text of
//! that pattern is a valid cursor.

use std::cmp::Ordering;

use photofinish_store::model::ids::PhotoId;
use uuid::Uuid;

use crate::validate::validators::{Text, formatted};

const ID_CURSOR_PATTERN: &str = "^[0-9a-f]{32}$";
const HIT_CURSOR_PATTERN: &str = "^[0-9a-f]{48}$";

/// The rule of a cursor that names the last object of a page.
pub(crate) fn id_cursor() -> Text {
    formatted(32, ID_CURSOR_PATTERN, |text| decode_hex::<16>(text).map(drop))
}

/// The rule of a cursor into search results.
pub(crate) fn hit_cursor() -> Text {
    formatted(48, HIT_CURSOR_PATTERN, |text| decode_hex::<24>(text).map(drop))
}

/// The cursor after an object.
pub(crate) fn encode_id(id: Uuid) -> String {
    id.simple().to_string()
}

/// The object that a cursor names; `None` for what [`id_rule`] refuses.
pub(crate) fn decode_id(text: &str) -> Option<Uuid> {
    decode_hex::<16>(text).ok().map(Uuid::from_bytes)
}

/// Where a hit stands in the order of a search: by falling score, then by photo. Stable while photos
/// are added: a later page never repeats a hit of an earlier one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HitPosition {
    /// The greater comes first.
    pub(crate) score: f64,
    /// The older comes first.
    pub(crate) photo: PhotoId,
}

impl HitPosition {
    /// Who comes first.
    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        other.score.total_cmp(&self.score).then(self.photo.cmp(&other.photo))
    }

    /// The cursor after this place.
    pub(crate) fn to_cursor(self) -> String {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.score.to_bits().to_be_bytes());
        bytes[8..].copy_from_slice(self.photo.0.as_bytes());
        hex::encode(bytes)
    }

    /// The place that a cursor names; `None` for what [`hit_rule`] refuses.
    pub(crate) fn from_cursor(text: &str) -> Option<Self> {
        let bytes = decode_hex::<24>(text).ok()?;
        let (score, photo) = bytes.split_first_chunk::<8>()?;
        let score = f64::from_bits(u64::from_be_bytes(*score));
        Some(Self { score, photo: PhotoId(Uuid::from_slice(photo).ok()?) })
    }
}

fn decode_hex<const N: usize>(text: &str) -> Result<[u8; N], String> {
    let wrong = || "must be a cursor that an earlier answer gave".to_owned();
    // Upper case would decode too, but is not what the pattern says.
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(wrong());
    }
    let mut bytes = [0; N];
    hex::decode_to_slice(text, &mut bytes).map_err(|_| wrong())?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn positions_round_trip_through_their_cursor(bits: u64, photo: u128) {
            let place = HitPosition { score: f64::from_bits(bits), photo: PhotoId(Uuid::from_u128(photo)) };
            let back = HitPosition::from_cursor(&place.to_cursor()).unwrap();
            prop_assert_eq!(back.compare(&place), Ordering::Equal);
            prop_assert_eq!(decode_id(&encode_id(place.photo.0)), Some(place.photo.0));
        }

        #[test]
        fn no_text_makes_a_cursor_panic(text: String) {
            prop_assert!(HitPosition::from_cursor(&text).is_none());
            prop_assert!(decode_id(&text).is_none());
        }
    }

    #[test]
    fn hits_are_ordered_by_score_then_photo() {
        let place = |score, photo| HitPosition { score, photo: PhotoId(Uuid::from_u128(photo)) };
        let mut places = [place(50.0, 3), place(90.0, 2), place(90.0, 1)];
        places.sort_by(HitPosition::compare);
        assert_eq!(places, [place(90.0, 1), place(90.0, 2), place(50.0, 3)]);
    }
}
