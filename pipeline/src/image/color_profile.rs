//! ICC colour profiles of photos: which colours the numbers of their pixels stand for. Pictures made from a photo keep its
//! profile, because browsers take a JPEG without one as sRGB, and photos in Adobe RGB or Display P3 would look pale. A profile
//! is copied, never applied: the pixels stay as they are coded, and networks get them so.

use bytes::Bytes;

use crate::image::jpeg_structure::{APP2, JpegStructure, PROFILE_SIGNATURE, header_segments};

/// The largest profile that is kept, bytes. Those of cameras and editors have 500 to 3,200. The copies in the files of a photo
/// are small beside what is reserved for these: a byte per pixel, of which they take a fifth.
const MAX_PROFILE_BYTES: usize = 64 << 10;
/// The largest profile that a thumbnail gets, whose own data are about 30 KB.
const MAX_THUMBNAIL_PROFILE_BYTES: usize = 4 << 10;
/// The header of a profile and the number of its tags.
const MIN_PROFILE_BYTES: usize = 132;

const APP0: u8 = 0xe0;
/// Bytes of a profile in one segment, at most. The length of a segment, two bytes, counts itself, signature and numbers too.
const MAX_PART_BYTES: usize = 0xffff - 2 - PROFILE_SIGNATURE.len() - 2;
/// The parts of a profile, at most: their number is a byte.
const MAX_PARTS: usize = 255;

/// Offset of the chunk after the canvas of a WebP file, which is the place of a profile.
const WEBP_PROFILE_OFFSET: usize = 30;

/// A profile of RGB colours. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ColorProfile(Bytes);

impl ColorProfile {
    /// Returns the profile if its header is one of RGB colours and of this length. Profiles of CMYK and of grey say nothing of
    /// the pictures that are made here, which are RGB.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let is_profile = (MIN_PROFILE_BYTES..=MAX_PROFILE_BYTES).contains(&bytes.len())
            && bytes[..4] == (bytes.len() as u32).to_be_bytes()
            && bytes[16..20] == *b"RGB "
            && bytes[36..40] == *b"acsp";
        is_profile.then(|| Self(Bytes::copy_from_slice(bytes)))
    }

    /// Reads the profile of a JPEG file with three colours. `None` as well if it is damaged.
    pub(crate) fn from_jpeg(file: &[u8]) -> Option<Self> {
        let profile = Self::from_bytes(&join_parts(file)?)?;
        (JpegStructure::read(file).components == 3).then_some(profile)
    }

    /// Reads the profile of a WebP file. The crate `image` would allocate as much as the file claims that it has.
    pub(crate) fn from_webp(file: &[u8]) -> Option<Self> {
        if file.get(12..16)? != b"VP8X" {
            return None;
        }
        let chunk = file.get(WEBP_PROFILE_OFFSET..)?.strip_prefix(b"ICCP")?;
        let (length, payload) = chunk.split_first_chunk::<4>()?;
        Self::from_bytes(payload.get(..u32::from_le_bytes(*length) as usize)?)
    }

    /// Whether a thumbnail gets it too: a list has many of them, and a large profile would be most of their bytes.
    pub(crate) fn suits_thumbnail(&self) -> bool {
        self.0.len() <= MAX_THUMBNAIL_PROFILE_BYTES
    }

    /// The segments that a JPEG file has it in.
    fn to_segments(&self) -> Vec<u8> {
        let parts = self.0.chunks(MAX_PART_BYTES);
        let count = parts.len() as u8;
        let mut segments = Vec::with_capacity(self.0.len() + 64);
        for (number, part) in (1_u8..).zip(parts) {
            let length = (2 + PROFILE_SIGNATURE.len() + 2 + part.len()) as u16;
            segments.extend_from_slice(&[0xff, APP2]);
            segments.extend_from_slice(&length.to_be_bytes());
            segments.extend_from_slice(PROFILE_SIGNATURE);
            segments.extend_from_slice(&[number, count]);
            segments.extend_from_slice(part);
        }
        segments
    }
}

/// Returns a JPEG file that was encoded here, with a profile if there is one: behind the segment that says that it is JFIF,
/// which must be the first. The binding of libjpeg-turbo has no call for that.
pub(crate) fn attach_profile(mut jpeg: Vec<u8>, profile: Option<&ColorProfile>) -> Bytes {
    if let Some(profile) = profile {
        let offset = match jpeg.as_slice() {
            [0xff, 0xd8, 0xff, APP0, high, low, ..] => 4 + usize::from(u16::from_be_bytes([*high, *low])),
            _ => 2,
        };
        let offset = offset.min(jpeg.len());
        jpeg.splice(offset..offset, profile.to_segments());
    }
    Bytes::from(jpeg)
}

/// Joins the parts of a profile, which may come in any order. `None` where one is missing, or there is one too many.
fn join_parts(file: &[u8]) -> Option<Vec<u8>> {
    let payloads = header_segments(file).filter(|(marker, _)| *marker == APP2);
    let parts =
        payloads.filter_map(|(_, payload)| payload.strip_prefix(PROFILE_SIGNATURE)?.split_first_chunk::<2>());
    // One more than there can be shows that they are too many.
    let mut parts: Vec<(&[u8; 2], &[u8])> = parts.take(MAX_PARTS + 1).collect();
    parts.sort_by_key(|(numbers, _)| **numbers);
    let mut profile = Vec::new();
    for (i, (numbers, part)) in parts.iter().enumerate() {
        let [number, count] = numbers.map(usize::from);
        if number != i + 1 || count != parts.len() || profile.len() + part.len() > MAX_PROFILE_BYTES {
            return None;
        }
        profile.extend_from_slice(part);
    }
    Some(profile)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::rgb_profile;

    /// A segment with a part of a profile.
    fn segment(number: u8, count: u8, part: &[u8]) -> Vec<u8> {
        let length = (part.len() + 16) as u16;
        [&[0xff, APP2][..], &length.to_be_bytes(), PROFILE_SIGNATURE, &[number, count], part].concat()
    }

    /// A JPEG file without pixels: these segments, and a frame of so many colours.
    fn jpeg(components: u8, segments: &[Vec<u8>]) -> Vec<u8> {
        let mut frame = vec![0xff, 0xc0, 0, 8 + 3 * components, 8, 0, 2, 0, 2, components];
        frame.extend((0..components).flat_map(|number| [number + 1, 0x11, 0]));
        let jfif = [0xff, APP0, 0, 4, 7, 7];
        [&[0xff, 0xd8][..], &jfif, &segments.concat(), &frame, &[0xff, 0xda, 0, 3, components]].concat()
    }

    #[test]
    fn a_profile_in_several_segments_is_joined() {
        let profile = rgb_profile(1000);
        let expected = ColorProfile::from_bytes(&profile);
        assert!(expected.is_some());
        let [first, second, third] = [
            segment(1, 3, &profile[..300]),
            segment(2, 3, &profile[300..700]),
            segment(3, 3, &profile[700..]),
        ];
        let parts = [third.clone(), first.clone(), second.clone()];
        assert_eq!(ColorProfile::from_jpeg(&jpeg(3, &parts)), expected, "in any order");
        // Cameras have other data in such segments too.
        let other = [&[0xff, APP2, 0, 6][..], b"MPF\0"].concat();
        let parts = [other, first.clone(), second.clone(), third.clone()];
        assert_eq!(ColorProfile::from_jpeg(&jpeg(3, &parts)), expected);
        for damaged in [
            vec![first.clone(), second.clone()],
            vec![first.clone(), second.clone(), second.clone()],
            vec![first.clone(), second.clone(), third.clone(), third],
            vec![first, second, segment(3, 4, &profile[700..])],
            vec![segment(0, 1, &profile)],
            vec![segment(1, 1, &profile[..999])],
        ] {
            assert_eq!(ColorProfile::from_jpeg(&jpeg(3, &damaged)), None, "{} parts", damaged.len());
        }
    }

    #[test]
    fn only_a_profile_of_rgb_of_a_photo_in_colours_is_kept() {
        let profile = rgb_profile(560);
        let whole = |profile: &[u8]| vec![segment(1, 1, profile)];
        assert!(ColorProfile::from_jpeg(&jpeg(3, &whole(&profile))).is_some());
        for components in [1, 4] {
            assert_eq!(ColorProfile::from_jpeg(&jpeg(components, &whole(&profile))), None);
        }
        for (offset, bytes) in [(16, b"CMYK"), (16, b"GRAY"), (36, b"acsq"), (0, b"\0\0\x02\x31")] {
            let mut other = profile.clone();
            other[offset..offset + 4].copy_from_slice(bytes);
            assert_eq!(ColorProfile::from_jpeg(&jpeg(3, &whole(&other))), None, "{bytes:?}");
        }
        assert_eq!(ColorProfile::from_bytes(&rgb_profile(131)), None);
        assert!(ColorProfile::from_bytes(&rgb_profile(64 << 10)).is_some());
        assert_eq!(ColorProfile::from_bytes(&rgb_profile((64 << 10) + 1)), None);
        assert_eq!(ColorProfile::from_jpeg(&jpeg(3, &[])), None);
    }

    #[test]
    fn a_profile_is_put_behind_the_first_segment_in_as_many_parts_as_it_needs() {
        for (length, segments) in [(132, 1), (MAX_PART_BYTES, 1), (MAX_PART_BYTES + 1, 2), (64 << 10, 2)] {
            let profile = ColorProfile::from_bytes(&rgb_profile(length)).unwrap();
            let file = jpeg(3, &[]);
            let attached = attach_profile(file.clone(), Some(&profile));
            assert_eq!(attached[..8], file[..8], "the first segment stays the first");
            let end = attached.len() - (file.len() - 8);
            assert_eq!(attached[end..], file[8..]);
            assert_eq!(attached.len() - file.len(), length + segments * 18);
            assert_eq!(ColorProfile::from_jpeg(&attached), Some(profile), "{length} bytes");
        }
        assert_eq!(attach_profile(jpeg(3, &[]), None), jpeg(3, &[]));
    }

    #[test]
    fn a_thumbnail_gets_small_profiles_only() {
        let suits = |length| ColorProfile::from_bytes(&rgb_profile(length)).unwrap().suits_thumbnail();
        assert!(suits(3144) && suits(4096) && !suits(4097));
    }

    #[test]
    fn a_webp_that_claims_a_longer_profile_than_it_has_is_without() {
        let profile = rgb_profile(560);
        let file = |claimed: u32| {
            let canvas = [&b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0"[..], &[0x20, 0, 0, 0, 31, 0, 0, 23, 0, 0]];
            [&canvas.concat()[..], b"ICCP", &claimed.to_le_bytes(), &profile].concat()
        };
        assert_eq!(ColorProfile::from_webp(&file(560)), ColorProfile::from_bytes(&profile));
        assert_eq!(ColorProfile::from_webp(&file(561)), None);
        assert_eq!(ColorProfile::from_webp(&file(u32::MAX)), None);
        assert_eq!(ColorProfile::from_webp(b"RIFF\0\0\0\0WEBPVP8L"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(part in prop::collection::vec(any::<u8>(), 0..200), number in 0_u8..4, count in 0_u8..4) {
            ColorProfile::from_bytes(&part);
            ColorProfile::from_jpeg(&part);
            ColorProfile::from_jpeg(&jpeg(3, &[segment(number, count, &part), segment(1, count, &part)]));
            ColorProfile::from_webp(&part);
            let profile = ColorProfile::from_bytes(&rgb_profile(200));
            attach_profile(part, profile.as_ref());
        }
    }
}
