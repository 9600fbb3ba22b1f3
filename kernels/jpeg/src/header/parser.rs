//! Reads the segments of a header and puts them together. Where libjpeg-turbo would warn, fail or guess, it refuses, but for
//! two warnings: of three bytes of the scan header that mean nothing here, which many phones fill with other values, and of
//! the numbers in the segments of a colour profile, which is not read here.

use crate::fault::Refusal::{self, Malformed, Unsupported};
use crate::header::segments::{Segment, Segments, read_u16};
use crate::header::{Component, Header, Quant, Sampling, Size};
use crate::huffman::{Class, HuffmanSpec};
use crate::zigzag::NATURAL;

/// The longest side that libjpeg-turbo decodes, pixels.
const MAX_SIDE: usize = 65_500;

/// The most bytes of a buffer, as the standard library has it. A picture of the longest sides in RGB has more on targets of
/// 32 bits.
const MAX_RGB_BYTES: usize = isize::MAX as usize;

/// The slots for tables that a file may use.
const SLOTS: usize = 4;

/// A component as the frame header tells it.
#[derive(Clone, Copy, Debug, Default)]
struct FrameComponent {
    id: u8,
    blocks_across: usize,
    blocks_down: usize,
    quant: usize,
}

/// The frame header.
#[derive(Clone, Copy, Debug)]
struct Frame {
    size: Size,
    sampling: Sampling,
    components: [FrameComponent; 3],
    component_count: usize,
}

/// What has been read so far.
pub(super) struct Parser<'a> {
    file: &'a [u8],
    frame: Option<Frame>,
    quant: [Option<Quant>; SLOTS],
    dc: [Option<HuffmanSpec<'a>>; SLOTS],
    ac: [Option<HuffmanSpec<'a>>; SLOTS],
    restart_interval: usize,
    is_jfif: bool,
    adobe_transform: Option<u8>,
}

impl<'a> Parser<'a> {
    pub(super) fn new(file: &'a [u8]) -> Self {
        Self {
            file,
            frame: None,
            quant: [None; SLOTS],
            dc: [None; SLOTS],
            ac: [None; SLOTS],
            restart_interval: 0,
            is_jfif: false,
            adobe_transform: None,
        }
    }

    pub(super) fn read(mut self) -> Result<Header<'a>, Refusal> {
        let mut segments = Segments::new(self.file)?;
        loop {
            let Segment { marker, body } = segments.next()?;
            match marker {
                0xc0 | 0xc1 => self.read_frame(body)?,
                0xc4 => self.read_huffman_tables(body)?,
                0xc2..=0xcf => return Err(Unsupported("coding process")),
                0xda => return self.finish(body, segments.offset()),
                0xdb => self.read_quant_tables(body)?,
                0xdd => self.read_restart_interval(body)?,
                0xe0 => self.read_jfif(body)?,
                0xee => self.read_adobe(body),
                0xe1..=0xef | 0xfe => {}
                _ => return Err(Unsupported("marker")),
            }
        }
    }

    fn read_frame(&mut self, body: &[u8]) -> Result<(), Refusal> {
        let &[precision, _, _, _, _, count, ref parts @ ..] = body else {
            return Err(Malformed("frame header"));
        };
        let size = Size { height: read_u16(body, 1).unwrap_or(0), width: read_u16(body, 3).unwrap_or(0) };
        if self.frame.is_some() || parts.len() != usize::from(count) * 3 {
            return Err(Malformed("frame header"));
        }
        if precision != 8 {
            return Err(Unsupported("sample precision"));
        }
        if !(1..=MAX_SIDE).contains(&size.width) || !(1..=MAX_SIDE).contains(&size.height) {
            return Err(Unsupported("length of a side"));
        }
        if !fits_in_rgb(size, MAX_RGB_BYTES) {
            return Err(Unsupported("number of pixels"));
        }
        if count != 1 && count != 3 {
            return Err(Unsupported("number of components"));
        }
        let component_count = usize::from(count);
        let mut components = [FrameComponent::default(); 3];
        for (component, part) in components.iter_mut().zip(parts.chunks_exact(3)) {
            *component = FrameComponent {
                id: part[0],
                blocks_across: usize::from(part[1] >> 4),
                blocks_down: usize::from(part[1] & 15),
                quant: usize::from(part[2]),
            };
        }
        let sampling = find_sampling(&mut components[..component_count])?;
        self.frame = Some(Frame { size, sampling, components, component_count });
        Ok(())
    }

    fn read_quant_tables(&mut self, mut body: &[u8]) -> Result<(), Refusal> {
        while let [kind, rest @ ..] = body {
            let (is_wide, slot) = (kind >> 4 == 1, usize::from(kind & 15));
            let bytes = if is_wide { 128 } else { 64 };
            if kind >> 4 > 1 || slot >= SLOTS || rest.len() < bytes {
                return Err(Malformed("quantisation table"));
            }
            let mut table = [0; 64];
            for (k, natural) in NATURAL.iter().enumerate() {
                table[usize::from(*natural)] = match is_wide {
                    true => i16::from_be_bytes([rest[k * 2], rest[k * 2 + 1]]),
                    false => i16::from(rest[k]),
                };
            }
            self.quant[slot] = Some(table);
            body = &rest[bytes..];
        }
        Ok(())
    }

    fn read_huffman_tables(&mut self, mut body: &'a [u8]) -> Result<(), Refusal> {
        while let [kind, rest @ ..] = body {
            let counts: &[u8; 16] = rest.first_chunk().ok_or(Malformed("Huffman table"))?;
            let count: usize = counts.iter().map(|count| usize::from(*count)).sum();
            let symbols = rest.get(16..16 + count).ok_or(Malformed("Huffman table"))?;
            let (class, slots) = match kind >> 4 {
                0 => (Class::Dc, &mut self.dc),
                1 => (Class::Ac, &mut self.ac),
                _ => return Err(Malformed("class of a Huffman table")),
            };
            let slot = slots.get_mut(usize::from(kind & 15)).ok_or(Malformed("slot of a Huffman table"))?;
            *slot = Some(HuffmanSpec::new(class, *counts, symbols)?);
            body = &rest[16 + count..];
        }
        Ok(())
    }

    fn read_restart_interval(&mut self, body: &[u8]) -> Result<(), Refusal> {
        let &[high, low] = body else { return Err(Malformed("restart interval")) };
        self.restart_interval = usize::from(u16::from_be_bytes([high, low]));
        Ok(())
    }

    /// libjpeg knows a JFIF segment by its name and its least length, and warns of versions that are not 1.
    fn read_jfif(&mut self, body: &[u8]) -> Result<(), Refusal> {
        if body.len() >= 14 && body.starts_with(b"JFIF\0") {
            if body[5] != 1 {
                return Err(Unsupported("JFIF version"));
            }
            self.is_jfif = true;
        }
        Ok(())
    }

    fn read_adobe(&mut self, body: &[u8]) {
        if body.len() >= 12 && body.starts_with(b"Adobe") {
            self.adobe_transform = Some(body[11]);
        }
    }

    /// Reads the header of the scan, and looks up the tables that it names.
    fn finish(self, body: &[u8], scan_start: usize) -> Result<Header<'a>, Refusal> {
        let frame = self.frame.ok_or(Malformed("no frame header"))?;
        let count = frame.component_count;
        if body.first() != Some(&(count as u8)) {
            return Err(Unsupported("several scans"));
        }
        // The last three bytes say which coefficients the scan has, and which of their bits. A sequential scan has all of
        // them, so libjpeg-turbo warns of other values than 0, 63 and 0, and decodes all the same: some phones write others.
        if body.len() != 4 + count * 2 {
            return Err(Unsupported("scan header"));
        }
        self.check_colours(&frame)?;
        let mut parts = frame.components.iter().zip(body[1..].chunks_exact(2));
        let mut next = || {
            let (component, part) = parts.next().ok_or(Malformed("scan header"))?;
            self.find_tables(component, [part[0], part[1]])
        };
        let first = next()?;
        let components = if count == 1 { [first; 3] } else { [first, next()?, next()?] };
        let Frame { size, sampling, .. } = frame;
        let Self { file, restart_interval, .. } = self;
        Ok(Header { file, size, sampling, components, restart_interval, scan_start })
    }

    /// `part` is the component's id and slots as the scan header tells them.
    fn find_tables(&self, component: &FrameComponent, part: [u8; 2]) -> Result<Component<'a>, Refusal> {
        let [id, slots] = part;
        if id != component.id {
            return Err(Unsupported("order of components"));
        }
        let find = |tables: &[Option<HuffmanSpec<'a>>; SLOTS], slot: u8| {
            // Files without tables use the standard's; few do.
            tables.get(usize::from(slot)).copied().flatten().ok_or(Unsupported("no Huffman table"))
        };
        let quant = self.quant.get(component.quant).copied().flatten();
        Ok(Component {
            blocks_across: component.blocks_across,
            blocks_down: component.blocks_down,
            quant: quant.ok_or(Malformed("no quantisation table"))?,
            dc: find(&self.dc, slots >> 4)?,
            ac: find(&self.ac, slots & 15)?,
        })
    }

    /// Three components are YCbCr or RGB. The order of belief is libjpeg's: JFIF is YCbCr, then Adobe's word, then the
    /// names of the components.
    fn check_colours(&self, frame: &Frame) -> Result<(), Refusal> {
        if frame.sampling == Sampling::Grey {
            return Ok(());
        }
        let [a, b, c] = frame.components.map(|component| component.id);
        if a == b || b == c || a == c {
            return Err(Unsupported("components of the same name"));
        }
        match self.adobe_transform {
            _ if self.is_jfif => Ok(()),
            Some(1) => Ok(()),
            Some(_) => Err(Unsupported("colour transform")),
            None if [a, b, c] == *b"RGB" => Err(Unsupported("RGB")),
            None => Ok(()),
        }
    }
}

/// Whether a picture of that size in RGB takes at most `max_bytes`.
fn fits_in_rgb(size: Size, max_bytes: usize) -> bool {
    let bytes = size.width.checked_mul(size.height).and_then(|pixels| pixels.checked_mul(3));
    bytes.is_some_and(|bytes| bytes <= max_bytes)
}

/// Tells the sampling of a frame's components.
fn find_sampling(components: &mut [FrameComponent]) -> Result<Sampling, Refusal> {
    if let [grey] = components {
        // The scan of a single component is never interleaved, whatever its sampling factors say.
        let factors = [grey.blocks_across, grey.blocks_down];
        if factors.iter().any(|factor| !(1..=4).contains(factor)) {
            return Err(Malformed("sampling"));
        }
        (grey.blocks_across, grey.blocks_down) = (1, 1);
        return Ok(Sampling::Grey);
    }
    let factors = |component: &FrameComponent| (component.blocks_across, component.blocks_down);
    match components {
        [y, cb, cr] if factors(cb) == (1, 1) && factors(cr) == (1, 1) => match factors(y) {
            (1, 1) => Ok(Sampling::Full),
            (2, 1) => Ok(Sampling::HalfWidth),
            (2, 2) => Ok(Sampling::HalfBoth),
            _ => Err(Unsupported("sampling")),
        },
        _ => Err(Unsupported("sampling")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most bytes of a buffer where pointers have 32 bits.
    const MAX_BYTES_OF_32_BITS: usize = i32::MAX as usize;

    fn square(side: usize) -> Size {
        Size { width: side, height: side }
    }

    #[test]
    fn a_picture_that_no_buffer_can_have_is_told_by_its_size() {
        assert!(fits_in_rgb(square(26_754), MAX_BYTES_OF_32_BITS));
        assert!(!fits_in_rgb(square(26_755), MAX_BYTES_OF_32_BITS));
        // On 64 bits no file is refused for this.
        assert_eq!(fits_in_rgb(square(MAX_SIDE), MAX_RGB_BYTES), usize::BITS == 64);
        // Products that are no number of the target.
        assert!(!fits_in_rgb(Size { width: usize::MAX, height: 2 }, usize::MAX));
        assert!(!fits_in_rgb(Size { width: usize::MAX / 2, height: 1 }, usize::MAX));
    }
}
