//! The segments of a JPEG file: what libjpeg-turbo does not report, or only warns about. Reads markers, never pixels, and
//! rewrites only what does not change the pixels.

/// What the segments before the first scan say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JpegStructure {
    /// Width and height of the frame; `None` without a frame header.
    pub(crate) size: Option<(u32, u32)>,
    /// Colour components of the frame.
    pub(crate) components: u8,
    /// Whether each coefficient is spread over several scans.
    pub(crate) is_progressive: bool,
    /// Whether each scan has all coefficients of its components, so that its parameters mean nothing.
    pub(crate) is_sequential: bool,
    /// Colour components in the first scan; 0 without a scan.
    pub(crate) first_scan_components: u8,
    /// Whether the header of the first scan ends in the parameters of a sequential one.
    pub(crate) has_usual_scan: bool,
    /// Whether the file has an Adobe segment: its CMYK is then stored inverted.
    pub(crate) is_adobe: bool,
}

/// A marker without a segment, which means nothing in a header, as the markers of restarts from `0xd0`.
const TEM: u8 = 0x01;
const SOI: u8 = 0xd8;
const EOI: u8 = 0xd9;
const SOS: u8 = 0xda;
const APP0: u8 = 0xe0;
/// The marker of segments that may have a part of a colour profile.
pub(crate) const APP2: u8 = 0xe2;
const APP14: u8 = 0xee;

/// What the payload of a segment with a profile begins with; the part's number, from 1, and the number of parts follow.
pub(crate) const PROFILE_SIGNATURE: &[u8; 12] = b"ICC_PROFILE\0";

/// The least bytes of a payload that libjpeg-turbo takes for JFIF's, and for Adobe's: the last of these is the transform.
const JFIF_BYTES: usize = 14;
const ADOBE_BYTES: usize = 12;

/// The end of a scan header that has all coefficients, with all their bits: the first coefficient, the last one, and no bits
/// left out.
const SEQUENTIAL_PARAMETERS: [u8; 3] = [0, 63, 0];

impl JpegStructure {
    /// Reads the segments up to the first scan, or to where the file is damaged.
    pub(crate) fn read(file: &[u8]) -> Self {
        let mut structure = Self::default();
        let mut markers = MarkerIter { file, offset: 0 };
        while let Some((marker, payload)) = markers.next_segment() {
            match marker {
                SOS => {
                    structure.first_scan_components = payload.first().copied().unwrap_or(0);
                    structure.has_usual_scan = read_scan_parameters(payload) == Some(SEQUENTIAL_PARAMETERS);
                    break;
                }
                EOI => break,
                APP14 => structure.is_adobe |= payload.starts_with(b"Adobe"),
                // Frame headers of every coding process; c4, c8 and cc are tables.
                0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                    structure.record_frame_header(marker, payload)
                }
                _ => {}
            }
        }
        structure
    }

    /// Bytes of coefficients per pixel that a decoder keeps until it has read all scans: 16 bits for each component, none
    /// of which has more samples than the picture has pixels. 0 where a single scan has all components, as a row of
    /// blocks is then enough.
    pub(crate) fn coefficient_bytes_per_pixel(&self) -> usize {
        if self.is_progressive || self.has_several_scans() { 2 * usize::from(self.components) } else { 0 }
    }

    /// Whether libjpeg-turbo may warn of the parameters of a sequential scan, so that it is given a copy of the file:
    /// [`without_oddities`]. Of several scans the later ones are not looked at here.
    pub(crate) fn may_need_a_copy(&self) -> bool {
        self.is_sequential && (!self.has_usual_scan || self.has_several_scans())
    }

    /// Whether the first scan has not all components.
    fn has_several_scans(&self) -> bool {
        self.first_scan_components < self.components
    }

    fn record_frame_header(&mut self, marker: u8, payload: &[u8]) {
        let &[_precision, h1, h0, w1, w0, components, ..] = payload else { return };
        let size = (u32::from(u16::from_be_bytes([w1, w0])), u32::from(u16::from_be_bytes([h1, h0])));
        self.size.get_or_insert(size);
        self.components = components;
        self.is_progressive = matches!(marker, 0xc2 | 0xc6 | 0xca | 0xce);
        // Of Huffman codes, baseline and extended, and of arithmetic ones.
        self.is_sequential = matches!(marker, 0xc0 | 0xc1 | 0xc9);
    }
}

/// Returns a copy of a file, as long as the file, without the things of which libjpeg-turbo warns and which do not change the
/// pixels: in a sequential file each scan header ends in the parameters that such a scan has, as others mean nothing there;
/// the parts of a colour profile, whose numbers may contradict each other, are no longer named as such; what stands between
/// the segments of the header are fill bytes; the revision of JFIF is 1; and a transform of Adobe that is none is the one that
/// libjpeg-turbo takes it for.
pub(crate) fn without_oddities(file: &[u8]) -> Vec<u8> {
    let JpegStructure { is_sequential, components, .. } = JpegStructure::read(file);
    let mut copy = file.to_vec();
    let mut markers = MarkerIter { file, offset: 0 };
    let (mut last_end, mut is_header) = (0, true);
    while let Some((marker, payload)) = markers.next_segment() {
        if marker == EOI {
            break;
        }
        // The iterator stands behind the segment, which its payload ends.
        let end = markers.offset;
        let begin = end - payload.len();
        if is_header {
            // In front of the payload are two bytes of its length, and two of the marker.
            fill_stray_bytes(&mut copy[last_end..begin - 4]);
        }
        match marker {
            SOS if is_sequential && read_scan_parameters(payload).is_some() => {
                copy[end - SEQUENTIAL_PARAMETERS.len()..end].copy_from_slice(&SEQUENTIAL_PARAMETERS);
            }
            APP0 if payload.len() >= JFIF_BYTES && payload.starts_with(b"JFIF\0") => copy[begin + 5] = 1,
            APP2 if payload.starts_with(PROFILE_SIGNATURE) => copy[begin] = 0,
            APP14 if payload.len() >= ADOBE_BYTES && payload.starts_with(b"Adobe") => {
                let transform = &mut copy[begin + ADOBE_BYTES - 1];
                *transform = known_transform(components, *transform);
            }
            _ => {}
        }
        is_header &= marker != SOS;
        last_end = end;
    }
    copy
}

/// Turns bytes between two segments of a header into fill bytes, which may stand in front of any marker. Markers without
/// segments stay.
fn fill_stray_bytes(gap: &mut [u8]) {
    let mut previous = 0;
    for byte in gap {
        let is_marker = previous == 0xff && matches!(*byte, TEM | 0xd0..=SOI);
        previous = *byte;
        if !is_marker {
            *byte = 0xff;
        }
    }
}

/// The transform that libjpeg-turbo takes one of Adobe for: of three colours it knows 0 and 1, of four 0 and 2.
fn known_transform(components: u8, transform: u8) -> u8 {
    match (components, transform) {
        (3, 2..) => 1,
        (4, 1 | 3..) => 2,
        (_, known) => known,
    }
}

/// Returns what is in front of the pixels of the first scan; the whole file where none begins.
pub(crate) fn before_pixels(file: &[u8]) -> &[u8] {
    let mut markers = MarkerIter { file, offset: 0 };
    while let Some((marker, _)) = markers.next_segment() {
        if marker == SOS {
            return &file[..markers.offset];
        }
    }
    file
}

/// The last bytes of a scan header: which coefficients the scan has, and which of their bits. `None` when the header has not
/// the length that its number of components demands.
fn read_scan_parameters(payload: &[u8]) -> Option<[u8; 3]> {
    let components = usize::from(*payload.first()?);
    let parameters = payload.get(1 + 2 * components..)?;
    parameters.try_into().ok()
}

/// Whether the file reaches its end marker. A truncated file does not, even where libjpeg-turbo decodes it.
pub(crate) fn has_end_marker(file: &[u8]) -> bool {
    let mut markers = MarkerIter { file, offset: 0 };
    while let Some((marker, _)) = markers.next_segment() {
        if marker == EOI {
            return true;
        }
    }
    false
}

/// Returns the segments up to the first scan, or to where the file is damaged: each marker with its payload.
pub(crate) fn header_segments(file: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut markers = MarkerIter { file, offset: 0 };
    std::iter::from_fn(move || markers.next_segment().filter(|(marker, _)| !matches!(*marker, SOS | EOI)))
}

/// Iterates over the segments; skips entropy-coded pixels and stray bytes between them.
struct MarkerIter<'a> {
    file: &'a [u8],
    offset: usize,
}

impl<'a> MarkerIter<'a> {
    fn next_segment(&mut self) -> Option<(u8, &'a [u8])> {
        loop {
            let rest = self.file.get(self.offset..)?;
            let marker_offset = self.offset + rest.iter().position(|byte| *byte == 0xff)?;
            let marker = *self.file.get(marker_offset + 1)?;
            self.offset = marker_offset + 1;
            match marker {
                // A stuffed zero, a restart marker within pixels, the start of the image; 0xff is a fill byte in front of
                // the next marker.
                0x00 | TEM | 0xd0..=SOI => self.offset += 1,
                0xff => {}
                EOI => return Some((EOI, &[])),
                _ => return self.read_payload(marker),
            }
        }
    }

    fn read_payload(&mut self, marker: u8) -> Option<(u8, &'a [u8])> {
        let begin = self.offset + 1;
        let length: [u8; 2] = self.file.get(begin..begin + 2)?.try_into().ok()?;
        let end = begin + usize::from(u16::from_be_bytes(length)).max(2);
        let payload = self.file.get(begin + 2..end)?;
        self.offset = end;
        Some((marker, payload))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_frame_header_is_read() {
        let file = [
            0xff, 0xd8, 0xff, 0xee, 0, 9, b'A', b'd', b'o', b'b', b'e', 0, 0, 0xff, 0xc2, 0, 11, 8, 0, 2, 1,
            3, 4, 0, 0, 0, 0xff, 0xda, 0, 3, 1,
        ];
        let structure = JpegStructure::read(&file);
        let size = Some((259, 2));
        let expected = JpegStructure {
            size,
            components: 4,
            is_progressive: true,
            is_sequential: false,
            first_scan_components: 1,
            has_usual_scan: false,
            is_adobe: true,
        };
        assert_eq!(structure, expected);
        assert!(!has_end_marker(&file));
    }

    #[test]
    fn coefficients_are_kept_when_no_scan_has_all_components() {
        let kept_bytes = |frame: u8, scan: u8| {
            let size = [0, 2, 0, 2];
            let mut file = vec![0xff, 0xd8, 0xff, frame, 0, 11, 8];
            file.extend(size);
            file.extend([3, 0, 0, 0, 0xff, 0xda, 0, 3, scan]);
            JpegStructure::read(&file).coefficient_bytes_per_pixel()
        };
        assert_eq!(kept_bytes(0xc0, 3), 0);
        assert_eq!(kept_bytes(0xc0, 2), 6);
        assert_eq!(kept_bytes(0xc1, 1), 6);
        assert_eq!(kept_bytes(0xc2, 3), 6);
        assert_eq!(JpegStructure::read(b"").coefficient_bytes_per_pixel(), 0);
    }

    /// A file of this coding process whose frame has two components, and a scan of each number of components with these
    /// parameters.
    fn with_scans(frame: u8, scans: &[(u8, [u8; 3])]) -> Vec<u8> {
        let mut file = vec![0xff, 0xd8, 0xff, frame, 0, 14, 8, 0, 2, 0, 2, 2, 1, 0x11, 0, 2, 0x11, 0];
        for &(components, parameters) in scans {
            file.extend([0xff, 0xda, 0, 6 + 2 * components, components]);
            file.extend([1_u8, 0].repeat(usize::from(components)));
            file.extend(parameters);
            // Pixels, with a stuffed byte and a restart.
            file.extend([7, 0xff, 0, 9, 0xff, 0xd0, 5]);
        }
        file.extend([0xff, 0xd9, 0xff, 0xda, 0, 8, 1, 1, 0, 1, 2, 3]);
        file
    }

    #[test]
    fn each_scan_gets_the_parameters_of_a_sequential_one_and_nothing_else_is_changed() {
        let usual = [0, 63, 0];
        let odd = [(2, [0; 3]), (1, [1, 2, 3]), (1, usual), (2, [0xff; 3])];
        let expected = [(2, usual), (1, usual), (1, usual), (2, usual)];
        assert_eq!(without_oddities(&with_scans(0xc0, &odd)), with_scans(0xc0, &expected));
        // They mean something in progressive files and in lossless ones.
        for other in [0xc2, 0xc3] {
            assert_eq!(without_oddities(&with_scans(other, &odd)), with_scans(other, &odd));
        }
        // A header without them.
        let frame = [0xff, 0xd8, 0xff, 0xc0, 0, 11, 8, 0, 2, 0, 2, 1, 1, 0x11, 0];
        let malformed = [&frame[..], &[0xff, 0xda, 0, 6, 3, 4, 5, 6, 0xff, 0xd9]].concat();
        assert_eq!(without_oddities(&malformed), malformed);
    }

    #[test]
    fn the_parts_of_a_profile_get_another_name_and_nothing_else_is_changed() {
        let scans = with_scans(0xc2, &[(2, [0, 0, 0])]);
        let file = |name: &[u8; 12]| {
            let profile = [&[0xff, APP2, 0, 18][..], name, &[2, 1, 0xff, 0xda]].concat();
            // Cameras have other data in such segments too, and these bytes may be in any segment.
            let other = [&[0xff, APP2, 0, 6][..], b"MPF\0"].concat();
            let named = [&[0xff, 0xe1, 0, 14][..], PROFILE_SIGNATURE].concat();
            [&scans[..2], &profile, &other, &named, &profile, &scans[2..]].concat()
        };
        assert_eq!(without_oddities(&file(PROFILE_SIGNATURE)), file(b"\0CC_PROFILE\0"));
    }

    #[test]
    fn stray_bytes_of_the_header_become_fill_bytes_and_nothing_else_is_changed() {
        let scans = with_scans(0xc0, &[(1, [0, 63, 0]), (1, [0, 63, 0])]);
        let file = |stray: &[u8]| [&scans[..2], stray, &scans[2..18], stray, &scans[18..]].concat();
        for (stray, filled) in [
            (&[7, 0xd8, 0xff, 0, 0xd0][..], &[0xff; 5][..]),
            // Markers without segments, the second one behind a fill byte.
            (
                &[7, 0xff, 0xd0, 0xd0, 0xff, 0xff, 1, 7][..],
                &[0xff, 0xff, 0xd0, 0xff, 0xff, 0xff, 1, 0xff][..],
            ),
            (&[0xff, 0xff][..], &[0xff, 0xff][..]),
        ] {
            assert_eq!(without_oddities(&file(stray)), file(filled), "{stray:02x?}");
        }
    }

    #[test]
    fn an_odd_revision_and_an_odd_transform_become_known_ones_and_nothing_else_is_changed() {
        let file = |components: u8, revision: u8, transform: u8| {
            let jfif = [&[0xff, APP0, 0, 16][..], b"JFIF\0", &[revision, 2, 0, 0, 1, 0, 1, 0, 0]].concat();
            let adobe = [&[0xff, APP14, 0, 14][..], b"Adobe", &[0, 100, 0, 0, 0, 0, transform]].concat();
            // Segments that are too short to be one of these.
            let short =
                [&[0xff, APP0, 0, 10][..], b"JFIF\0", &[2, 2, 0], &[0xff, APP14, 0, 7], b"Adobe"].concat();
            let frame = [0xff, 0xc0, 0, 8, 8, 0, 2, 0, 2, components];
            [&[0xff, SOI][..], &jfif, &short, &adobe, &frame, &[0xff, SOS, 0, 2, 0xff, EOI]].concat()
        };
        for (components, transform, known) in [
            (3, 0, 0),
            (3, 1, 1),
            (3, 2, 1),
            (3, 255, 1),
            (4, 0, 0),
            (4, 1, 2),
            (4, 2, 2),
            (4, 3, 2),
            (1, 9, 9),
        ] {
            let odd = file(components, 2, transform);
            assert_eq!(without_oddities(&odd), file(components, 1, known), "{transform} of {components}");
        }
    }

    #[test]
    fn what_is_in_front_of_the_pixels_ends_with_the_header_of_the_first_scan() {
        let file = with_scans(0xc0, &[(1, [0, 63, 0]), (1, [0, 63, 0])]);
        let end = 18 + 10;
        assert_eq!(file[end..end + 2], [7, 0xff], "the first pixels");
        assert_eq!(before_pixels(&file), &file[..end]);
        assert_eq!(before_pixels(&file[..18]), &file[..18]);
    }

    #[test]
    fn a_copy_may_be_needed_of_sequential_files_with_odd_or_several_scans() {
        let may_need = |frame: u8, components: u8, parameters: [u8; 3]| {
            JpegStructure::read(&with_scans(frame, &[(components, parameters)])).may_need_a_copy()
        };
        for sequential in [0xc0, 0xc1, 0xc9] {
            assert!(!may_need(sequential, 2, [0, 63, 0]));
            assert!(may_need(sequential, 2, [0; 3]));
            // A later scan may be odd.
            assert!(may_need(sequential, 1, [0, 63, 0]));
        }
        // Progressive ones and lossless ones.
        for other in [0xc2, 0xc3] {
            assert!(!may_need(other, 2, [0; 3]) && !may_need(other, 1, [0; 3]));
        }
    }

    #[test]
    fn stuffed_bytes_and_restarts_are_pixels() {
        let mut file = vec![0xff, 0xd8, 0xff, 0xda, 0, 2, 1, 0xff, 0x00, 0xff, 0xd3, 7, 0xff, 0xff];
        assert!(!has_end_marker(&file));
        file.push(0xd9);
        assert!(has_end_marker(&file));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(mut file in prop::collection::vec(any::<u8>(), 0..300), marks in prop::collection::vec(0_usize..300, 0..20)) {
            for mark in marks {
                if let Some(byte) = file.get_mut(mark) {
                    *byte = 0xff;
                }
            }
            JpegStructure::read(&file);
            has_end_marker(&file);
            assert_eq!(without_oddities(&file).len(), file.len());
            assert!(file.starts_with(before_pixels(&file)));
        }
    }
}
