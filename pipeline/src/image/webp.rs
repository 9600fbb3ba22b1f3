//! The chunks of a WebP file, checked before the crate `image` decodes it, which allocates for the size that a picture
//! claims and only afterwards compares that with its frame. Also finds EXIF data. Reads headers, never pixels.

/// Offset of the first chunk: after `RIFF`, the file's length and `WEBP`.
const FIRST_CHUNK_OFFSET: usize = 12;
/// Offset of an extended file's flags, the first byte in its first chunk.
const FLAGS_OFFSET: usize = 20;
/// Offsets of the canvas' width and height.
const CANVAS_SIDE_OFFSETS: [usize; 2] = [24, 27];
/// Flag of an animation.
const ANIMATION_FLAG: u8 = 0b10;
/// Offsets of the width and height of an animation's frame, in its chunk.
const FRAME_SIDE_OFFSETS: [usize; 2] = [6, 9];
/// Offset of the chunks of its picture, in the frame's chunk.
const FRAME_CHUNKS_OFFSET: usize = 16;

/// The headers of the picture that is decoded: the only one, or the first of an animation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FirstPicture {
    /// Width and height of the frame that it must fill. The decoder itself checks that the frame is within the canvas.
    pub(crate) frame_size: (u32, u32),
    /// Width and height of the picture itself, for which the decoder allocates.
    pub(crate) stored_size: (u32, u32),
    /// Whether it is drawn onto a canvas.
    pub(crate) is_animated: bool,
}

impl FirstPicture {
    /// Reads the headers. `None` when there is no picture, or its header is incomplete.
    pub(crate) fn read(file: &[u8]) -> Option<Self> {
        let mut chunks = ChunkIter { bytes: file, offset: FIRST_CHUNK_OFFSET };
        let Some(canvas) = read_canvas_size(file) else {
            let stored = chunks.next()?.read_picture_size()?;
            return Some(Self { frame_size: stored, stored_size: stored, is_animated: false });
        };
        if file.get(FLAGS_OFFSET)? & ANIMATION_FLAG == 0 {
            let picture = chunks.find(|chunk| matches!(&chunk.name, b"VP8 " | b"VP8L"))?;
            return Some(Self {
                frame_size: canvas,
                stored_size: picture.read_picture_size()?,
                is_animated: false,
            });
        }
        let frame = chunks.find(|chunk| chunk.name == *b"ANMF")?.payload;
        let mut chunks = ChunkIter { bytes: frame, offset: FRAME_CHUNKS_OFFSET };
        let first = chunks.next()?;
        // The decoder treats the chunk after an alpha channel as a lossy picture, whatever its name is.
        let stored = match &first.name {
            b"ALPH" => read_lossy_size(chunks.next()?.payload)?,
            _ => first.read_picture_size()?,
        };
        Some(Self {
            frame_size: read_sides(frame, FRAME_SIDE_OFFSETS)?,
            stored_size: stored,
            is_animated: true,
        })
    }
}

/// Width and height of the canvas of an extended file, up to 2^24 pixels per side. `None` for a simple file, which has
/// one picture with sides of 14 bits.
pub(crate) fn read_canvas_size(file: &[u8]) -> Option<(u32, u32)> {
    let name = file.get(FIRST_CHUNK_OFFSET..FIRST_CHUNK_OFFSET + 4)?;
    if name == b"VP8X" { read_sides(file, CANVAS_SIDE_OFFSETS) } else { None }
}

/// Returns the file's EXIF data: its first chunk of that kind.
pub(crate) fn find_exif(file: &[u8]) -> Option<&[u8]> {
    let mut chunks = ChunkIter { bytes: file, offset: FIRST_CHUNK_OFFSET };
    chunks.find(|chunk| chunk.name == *b"EXIF").map(|chunk| chunk.payload)
}

/// Reads two sides of 24 bits, each stored as one less.
fn read_sides(bytes: &[u8], [width_offset, height_offset]: [usize; 2]) -> Option<(u32, u32)> {
    let side = |offset: usize| {
        let [low, middle, high]: [u8; 3] = bytes.get(offset..offset + 3)?.try_into().ok()?;
        Some(u32::from_le_bytes([low, middle, high, 0]) + 1)
    };
    Some((side(width_offset)?, side(height_offset)?))
}

/// After a tag and a start code of three bytes each: two sides of 14 bits, each with 2 bits of display scale.
fn read_lossy_size(payload: &[u8]) -> Option<(u32, u32)> {
    let [w0, w1, h0, h1]: [u8; 4] = payload.get(6..10)?.try_into().ok()?;
    let side = |bytes: [u8; 2]| u32::from(u16::from_le_bytes(bytes) & 0x3fff);
    Some((side([w0, w1]), side([h0, h1])))
}

/// After a signature of one byte: two sides of 14 bits, each stored as one less.
fn read_lossless_size(payload: &[u8]) -> Option<(u32, u32)> {
    let bits = u32::from_le_bytes(payload.get(1..5)?.try_into().ok()?);
    Some(((bits & 0x3fff) + 1, ((bits >> 14) & 0x3fff) + 1))
}

/// Iterates over chunks; the payload of a truncated one ends with the file.
struct ChunkIter<'a> {
    bytes: &'a [u8],
    offset: usize,
}

struct RiffChunk<'a> {
    name: [u8; 4],
    payload: &'a [u8],
}

impl<'a> Iterator for ChunkIter<'a> {
    type Item = RiffChunk<'a>;

    fn next(&mut self) -> Option<RiffChunk<'a>> {
        let rest = self.bytes.get(self.offset..)?;
        let &[n0, n1, n2, n3, l0, l1, l2, l3] = rest.first_chunk::<8>()?;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        // Chunks begin at even offsets.
        self.offset += 8 + length + length % 2;
        let payload = &rest[8..rest.len().min(8 + length)];
        Some(RiffChunk { name: [n0, n1, n2, n3], payload })
    }
}

impl RiffChunk<'_> {
    fn read_picture_size(&self) -> Option<(u32, u32)> {
        if self.name == *b"VP8L" { read_lossless_size(self.payload) } else { read_lossy_size(self.payload) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Encodes a chunk.
    fn chunk(name: &[u8; 4], payload: &[u8]) -> Vec<u8> {
        let mut chunk = name.to_vec();
        chunk.extend((payload.len() as u32).to_le_bytes());
        chunk.extend(payload);
        chunk.resize(chunk.len().next_multiple_of(2), 0);
        chunk
    }

    fn file(chunks: &[Vec<u8>]) -> Vec<u8> {
        let mut file = b"RIFF\0\0\0\0WEBP".to_vec();
        file.extend(chunks.concat());
        file
    }

    const LOSSY: [u8; 10] = [0, 0, 0, 0x9d, 1, 0x2a, 0x02, 0xc1, 0x03, 0x01];
    /// 259 x 2 pixels: 258 in the lower 14 bits, 1 in the next.
    const LOSSLESS: [u8; 5] = [0x2f, 0x02, 0x41, 0x00, 0x00];
    /// A canvas of 65536 x 512 pixels.
    const EXTENDED: [u8; 10] = [0, 0, 0, 0, 0xff, 0xff, 0, 0xff, 1, 0];

    #[test]
    fn a_plain_picture_is_its_own_frame() {
        let plain = |size| Some(FirstPicture { frame_size: size, stored_size: size, is_animated: false });
        assert_eq!(FirstPicture::read(&file(&[chunk(b"VP8 ", &LOSSY)])), plain((258, 259)));
        assert_eq!(FirstPicture::read(&file(&[chunk(b"VP8L", &LOSSLESS)])), plain((259, 2)));
        assert_eq!(read_canvas_size(&file(&[chunk(b"VP8L", &LOSSLESS)])), None);
        assert_eq!(FirstPicture::read(&file(&[chunk(b"VP8 ", &LOSSY[..9])])), None);
    }

    #[test]
    fn the_picture_on_a_canvas_is_found() {
        let profile = chunk(b"ICCP", b"odd");
        let whole = file(&[chunk(b"VP8X", &EXTENDED), profile, chunk(b"VP8 ", &LOSSY)]);
        assert_eq!(read_canvas_size(&whole), Some((65536, 512)));
        let expected = FirstPicture { frame_size: (65536, 512), stored_size: (258, 259), is_animated: false };
        assert_eq!(FirstPicture::read(&whole), Some(expected));
        assert_eq!(FirstPicture::read(&file(&[chunk(b"VP8X", &EXTENDED)])), None);
    }

    #[test]
    fn the_first_picture_of_an_animation_is_found_after_its_alpha_chunk() {
        let mut extended = EXTENDED;
        extended[0] = ANIMATION_FLAG;
        let frame = |chunks: &[Vec<u8>]| {
            let header = vec![0, 0, 0, 0, 0, 0, 9, 0, 0, 19, 0, 0, 0, 0, 0, 0];
            chunk(b"ANMF", &[&[header][..], chunks].concat().concat())
        };
        let read = |frame: Vec<u8>| {
            FirstPicture::read(&file(&[chunk(b"VP8X", &extended), chunk(b"ANIM", &[0; 6]), frame]))
        };
        let expected =
            |stored| Some(FirstPicture { frame_size: (10, 20), stored_size: stored, is_animated: true });
        assert_eq!(read(frame(&[chunk(b"VP8L", &LOSSLESS)])), expected((259, 2)));
        assert_eq!(read(frame(&[chunk(b"ALPH", &[0; 3]), chunk(b"VP8 ", &LOSSY)])), expected((258, 259)));
        assert_eq!(read(frame(&[chunk(b"ALPH", &[0; 3]), chunk(b"VP8L", &LOSSY)])), expected((258, 259)));
        assert_eq!(read(frame(&[chunk(b"ALPH", &[0; 3])])), None);
    }

    #[test]
    fn the_first_chunk_of_exif_data_is_found() {
        let exif = |payload: &[u8]| chunk(b"EXIF", payload);
        let picture = chunk(b"VP8 ", &LOSSY[..9]);
        assert_eq!(find_exif(&file(&[picture.clone(), exif(b"odd"), exif(b"second")])), Some(&b"odd"[..]));
        assert_eq!(find_exif(&file(&[picture])), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..120), flags in 0_u8..4) {
            FirstPicture::read(&bytes);
            find_exif(&bytes);
            FirstPicture::read(&file(&[chunk(b"VP8X", &[flags; 10]), bytes.clone()]));
            FirstPicture::read(&file(&[chunk(b"VP8X", &[flags; 10]), chunk(b"ANMF", &bytes)]));
        }
    }
}
