//! Rows in 8 bits a component, in blocks, each row with its scale and its error.

use photofinish_dot::{GROUP, Line, Lines, ZERO};

pub use photofinish_dot::BLOCK_ROWS;

use super::codes::Codes;
use super::copy::{CopyPlace, DeviceCopy};

/// A row outside of [`QuantisedRows`].
pub struct QuantisedRow(pub(super) Codes);

/// Vectors of one length in 8 bits a component: 1 byte a component and 8 bytes more each.
#[derive(Default)]
pub struct QuantisedRows {
    dimension: usize,
    len: usize,
    lines: Lines,
    factors: Vec<BlockFactors>,
    /// The longest approximation that was ever among the rows.
    max_norm: f32,
    copy: CopyPlace,
}

/// What the bounds of a block's rows are made of.
#[derive(Clone, Copy)]
pub(crate) struct BlockFactors {
    pub(crate) scales: [f32; BLOCK_ROWS],
    pub(crate) errors: [f32; BLOCK_ROWS],
}

impl BlockFactors {
    const ZERO: Self = Self { scales: [0.0; BLOCK_ROWS], errors: [0.0; BLOCK_ROWS] };
}

impl QuantisedRow {
    /// Approximates a vector. Any is allowed: one with an infinite component or a NaN is a candidate of every search.
    pub fn new(vector: &[f32]) -> Self {
        Self(Codes::new(vector))
    }
}

impl QuantisedRows {
    /// Returns an empty list of vectors of `dimension` components.
    ///
    /// # Panics
    /// When `dimension` is 0.
    pub fn new(dimension: usize) -> Self {
        assert!(dimension > 0, "vectors have components");
        Self { dimension, ..Self::default() }
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the length of the vectors.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// Returns the number of rows that there is memory for, a multiple of [`BLOCK_ROWS`].
    pub fn capacity(&self) -> usize {
        self.factors.capacity() * BLOCK_ROWS
    }

    /// Returns the allocated memory in bytes.
    pub fn bytes(&self) -> usize {
        self.lines.capacity() * size_of::<Line>() + self.factors.capacity() * size_of::<BlockFactors>()
    }

    /// Returns the bytes that `rows` of `dimension` components occupy, a multiple of [`BLOCK_ROWS`].
    pub fn bytes_of(rows: usize, dimension: usize) -> usize {
        let block = dimension.div_ceil(GROUP) * size_of::<Line>() + size_of::<BlockFactors>();
        rows.div_ceil(BLOCK_ROWS) * block
    }

    /// Makes room for whole blocks: at least `additional` rows more than there are, rounded up.
    pub fn reserve_exact(&mut self, additional: usize) {
        let blocks = (self.len + additional).div_ceil(BLOCK_ROWS) - self.factors.len();
        self.factors.reserve_exact(blocks);
        self.lines.reserve_exact(blocks * self.groups());
    }

    /// Returns the copy of these rows on a device. The copy is given up when the rows change, and with them.
    pub fn device_copy(&self) -> DeviceCopy {
        self.copy.share()
    }

    /// Adds a row after the others.
    ///
    /// # Panics
    /// When it has another length.
    pub fn push(&mut self, row: &QuantisedRow) {
        assert_eq!(row.0.codes.len(), self.dimension, "vectors of one length");
        if self.len == self.factors.len() * BLOCK_ROWS {
            self.reserve_exact(1);
            self.factors.push(BlockFactors::ZERO);
            self.lines.extend_with_zeros(self.groups());
        }
        self.len += 1;
        self.set(self.len - 1, row);
    }

    /// Replaces a row.
    ///
    /// # Panics
    /// When there is no such row, or the new one has another length.
    pub fn set(&mut self, row: usize, new: &QuantisedRow) {
        assert!(row < self.len && new.0.codes.len() == self.dimension, "row {row} of {}", self.len);
        self.copy.clear();
        let (block, lane) = (row / BLOCK_ROWS, row % BLOCK_ROWS);
        self.factors[block].scales[lane] = new.0.scale;
        self.factors[block].errors[lane] = new.0.error;
        self.max_norm = self.max_norm.max(new.0.norm);
        let groups = self.groups();
        let lines = &mut self.lines[block * groups..][..groups];
        for (line, group) in lines.iter_mut().zip(new.0.codes.chunks(GROUP)) {
            for (component, code) in line.0[lane].iter_mut().zip(group) {
                *component = code.cast_unsigned().wrapping_add(ZERO);
            }
        }
    }

    /// Returns a copy of a row.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn get(&self, row: usize) -> QuantisedRow {
        let factors = &self.factors(row / BLOCK_ROWS);
        QuantisedRow(Codes {
            codes: self.codes(row).flatten().take(self.dimension).collect(),
            scale: factors.scales[row % BLOCK_ROWS],
            // Not more than the row's own needs to be: it only bounds.
            norm: self.max_norm,
            error: factors.errors[row % BLOCK_ROWS],
        })
    }

    /// Removes the last row and overwrites its bytes. Its memory stays.
    ///
    /// # Panics
    /// When there is none.
    pub fn pop(&mut self) -> QuantisedRow {
        let last = self.get(self.len - 1);
        let zeros = Codes { codes: vec![0; self.dimension], scale: 0.0, norm: 0.0, error: 0.0 };
        self.set(self.len - 1, &QuantisedRow(zeros));
        self.len -= 1;
        let blocks = self.len.div_ceil(BLOCK_ROWS);
        self.factors.truncate(blocks);
        self.lines.truncate(blocks * self.groups());
        last
    }

    /// Returns the components of a row as they are kept, the last group filled up with zeros.
    pub(super) fn codes(&self, row: usize) -> impl Iterator<Item = [i8; GROUP]> {
        assert!(row < self.len, "row {row} of {}", self.len);
        let lines = &self.lines[row / BLOCK_ROWS * self.groups()..][..self.groups()];
        let signed = |component: u8| component.wrapping_sub(ZERO).cast_signed();
        lines.iter().map(move |line| line.0[row % BLOCK_ROWS].map(signed))
    }

    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines
    }

    pub(crate) fn copy(&self) -> &CopyPlace {
        &self.copy
    }

    /// Returns the scale and the error of a row.
    pub(crate) fn row_factors(&self, row: usize) -> (f32, f32) {
        let factors = self.factors(row / BLOCK_ROWS);
        (factors.scales[row % BLOCK_ROWS], factors.errors[row % BLOCK_ROWS])
    }

    #[inline(always)]
    pub(crate) fn factors(&self, block: usize) -> &BlockFactors {
        &self.factors[block]
    }

    pub(super) fn max_norm(&self) -> f32 {
        self.max_norm
    }

    fn groups(&self) -> usize {
        self.dimension.div_ceil(GROUP)
    }
}
