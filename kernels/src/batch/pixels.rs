//! The pixels of photos in one buffer, each photo once however many items are cut of it.

use crate::image::frame::Frame;

/// Rows of a photo that an item reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    pub(super) frame: Frame<'a>,
    /// The first one, and one past the last.
    pub(super) from: u32,
    pub(super) to: u32,
}

/// Collects rows of photos.
#[derive(Default)]
pub(super) struct PixelBuffer<'a> {
    parts: Vec<(Rows<'a>, usize)>,
    bytes: usize,
}

impl<'a> Rows<'a> {
    pub(super) fn all(frame: Frame<'a>) -> Self {
        Self { frame, from: 0, to: frame.height() }
    }

    /// Bytes between the beginnings of two rows.
    pub(super) fn stride(&self) -> usize {
        self.frame.width() as usize * 3
    }

    pub(super) fn bytes(&self) -> usize {
        self.stride() * (self.to - self.from) as usize
    }

    fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self.frame.pixels(), other.frame.pixels())
            && self.frame.size() == other.frame.size()
            && (self.from, self.to) == (other.from, other.to)
    }
}

impl<'a> PixelBuffer<'a> {
    /// The bytes that there would be with these rows too.
    pub(super) fn bytes_with(&self, rows: &Rows<'a>) -> usize {
        let is_known = self.parts.iter().any(|(known, _)| known.is(rows));
        if is_known { self.bytes } else { self.bytes + rows.bytes() }
    }

    /// Adds rows, and returns the offset in bytes of where row 0 of the photo would be, modulo 2^32.
    pub(super) fn add(&mut self, rows: Rows<'a>) -> u32 {
        let known = self.parts.iter().find(|(known, _)| known.is(&rows)).map(|(_, offset)| *offset);
        let offset = known.unwrap_or_else(|| {
            self.parts.push((rows, self.bytes));
            self.bytes += rows.bytes();
            self.bytes - rows.bytes()
        });
        (offset as u32).wrapping_sub((rows.stride() * rows.from as usize) as u32)
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes);
        for (rows, _) in &self.parts {
            let stride = rows.stride();
            bytes.extend_from_slice(
                &rows.frame.pixels()[rows.from as usize * stride..rows.to as usize * stride],
            );
        }
        bytes
    }
}
