//! Probes in the order in which the instructions read them.

use crate::layout::{GROUP, ZERO};

/// Probes that are multiplied with a row while it is in registers.
pub(crate) const TILE: usize = 8;

/// One group of components of each probe of a tile.
pub(crate) type TileGroup = [[i8; GROUP]; TILE];

/// 8-bit vectors of one length. Cheap to make; immutable.
#[derive(Clone, Debug)]
pub struct Probes {
    count: usize,
    /// Groups of a vector.
    groups: usize,
    /// All groups of the first tile, then those of the second. The last tile is filled up with zeros.
    tiles: Vec<TileGroup>,
    /// Per probe what takes off the offset of the rows' components.
    offsets: Vec<i32>,
}

impl Probes {
    /// Makes them from components, -127 to 127.
    ///
    /// # Panics
    /// When the vectors differ in length, are empty, or so long (2^17 components) that a sum could overflow.
    pub fn new(vectors: &[&[i8]]) -> Self {
        let dimension = vectors.first().map_or(1, |vector| vector.len());
        assert!(dimension > 0 && dimension < 1 << 17, "vectors of {dimension} components");
        let groups = dimension.div_ceil(GROUP);
        let mut tiles = vec![[[0; GROUP]; TILE]; groups * vectors.len().div_ceil(TILE)];
        for (probe, vector) in vectors.iter().enumerate() {
            assert_eq!(vector.len(), dimension, "vectors of one length");
            let tile = &mut tiles[probe / TILE * groups..][..groups];
            for (place, component) in vector.iter().enumerate() {
                tile[place / GROUP][probe % TILE][place % GROUP] = *component;
            }
        }
        let sum = |vector: &&[i8]| vector.iter().map(|component| i32::from(*component)).sum::<i32>();
        let offsets = vectors.iter().map(|vector| -i32::from(ZERO) * sum(vector)).collect();
        Self { count: vectors.len(), groups, tiles, offsets }
    }

    /// Returns the number of probes.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no probe.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the lines of a block of rows of this length.
    pub fn groups(&self) -> usize {
        self.groups
    }

    /// Returns the groups of the tile that begins with probe `first`, a multiple of [`TILE`].
    #[inline(always)]
    pub(crate) fn tile(&self, first: usize) -> &[TileGroup] {
        &self.tiles[first / TILE * self.groups..][..self.groups]
    }

    /// Returns what must be added to the dot product of stored rows with this probe.
    #[inline(always)]
    pub(crate) fn offset(&self, probe: usize) -> i32 {
        self.offsets[probe]
    }
}
