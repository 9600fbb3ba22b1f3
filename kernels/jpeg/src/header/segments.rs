//! Iterates over the marker segments of a header. Stray bytes between segments are refused: a general decoder judges them.

use crate::fault::Refusal;

/// A marker and what its segment holds.
pub(super) struct Segment<'a> {
    pub(super) marker: u8,
    pub(super) body: &'a [u8],
}

/// Where the next segment begins.
pub(super) struct Segments<'a> {
    file: &'a [u8],
    offset: usize,
}

impl<'a> Segments<'a> {
    /// # Errors
    /// When the file does not begin with the marker of an image.
    pub(super) fn new(file: &'a [u8]) -> Result<Self, Refusal> {
        if file.starts_with(&[0xff, 0xd8]) { Ok(Self { file, offset: 2 }) } else { Err(Refusal::NotJpeg) }
    }

    /// The byte behind the last segment.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    /// # Errors
    /// When no whole segment follows.
    pub(super) fn next(&mut self) -> Result<Segment<'a>, Refusal> {
        let marker_offset = self.skip_fill_bytes()?;
        let marker = self.file[marker_offset];
        let begin = marker_offset + 1;
        let length = read_u16(self.file, begin).ok_or(Refusal::NotJpeg)?;
        if length < 2 {
            return Err(Refusal::Malformed("length of a segment"));
        }
        let body = self.file.get(begin + 2..begin + length).ok_or(Refusal::NotJpeg)?;
        self.offset = begin + length;
        Ok(Segment { marker, body })
    }

    /// Returns where the next marker's second byte is: any number of 0xff may stand before it.
    fn skip_fill_bytes(&self) -> Result<usize, Refusal> {
        let rest = &self.file[self.offset..];
        let count = rest.iter().position(|byte| *byte != 0xff).ok_or(Refusal::NotJpeg)?;
        if count == 0 { Err(Refusal::Unsupported("bytes between segments")) } else { Ok(self.offset + count) }
    }
}

/// Reads a number of two bytes.
pub(super) fn read_u16(bytes: &[u8], offset: usize) -> Option<usize> {
    let two = bytes.get(offset..offset + 2)?;
    Some(usize::from(u16::from_be_bytes([two[0], two[1]])))
}
