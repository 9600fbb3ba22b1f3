//! Vectors as the kernels read them: words of four or two components, in blocks of 32 vectors, of which first come all
//! first words, then all second ones.

use super::types::{Components, Vectors};
use crate::device::Device;
use crate::gpu::{GpuError, Resident};

/// Vectors of a block.
pub(super) const BLOCK: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    I8,
    F16,
}

/// Vectors in words, one after another.
pub(super) struct Packed {
    pub(super) kind: Kind,
    /// Words of a vector.
    pub(super) stride: usize,
    pub(super) words: Vec<u32>,
    pub(super) factors: Vec<f32>,
}

/// Vectors on a device.
#[derive(Debug)]
pub struct Album {
    device: Device,
    kind: Kind,
    dimension: usize,
    parts: Vec<Part>,
}

/// As many vectors as a buffer holds.
#[derive(Debug)]
pub(super) struct Part {
    /// Index of the first.
    pub(super) first: usize,
    pub(super) rows: usize,
    pub(super) stride: usize,
    pub(super) memory: Memory,
}

#[derive(Debug)]
pub(super) enum Memory {
    Host { words: Vec<u32>, factors: Vec<f32> },
    Device { words: Resident, factors: Resident },
}

impl Kind {
    fn components_of_word(self) -> usize {
        match self {
            Self::I8 => 4,
            Self::F16 => 2,
        }
    }
}

impl Packed {
    /// Packs vectors of `dimension` components, padded with zeros to whole words.
    pub(super) fn new(vectors: &Vectors<'_>, dimension: usize) -> Self {
        let (kind, length) = match vectors.components {
            Components::I8(components) => (Kind::I8, components.len()),
            Components::F16(components) => (Kind::F16, components.len()),
        };
        assert!(dimension > 0, "vectors have components");
        assert_eq!(length, vectors.factors.len() * dimension, "a factor a vector");
        let stride = dimension.div_ceil(kind.components_of_word());
        let words = match vectors.components {
            Components::I8(components) => components
                .chunks(dimension)
                .flat_map(|vector| vector.chunks(4))
                .map(|part| {
                    let byte = |index: usize| part.get(index).map_or(0, |value| value.cast_unsigned());
                    u32::from_le_bytes(std::array::from_fn(byte))
                })
                .collect(),
            Components::F16(components) => components
                .chunks(dimension)
                .flat_map(|vector| vector.chunks(2))
                .map(|part| u32::from(part[0]) | u32::from(part.get(1).copied().unwrap_or(0)) << 16)
                .collect(),
        };
        Self { kind, stride, words, factors: vectors.factors.to_vec() }
    }

    /// The words of some vectors in blocks.
    fn in_blocks(&self, rows: std::ops::Range<usize>) -> Vec<u32> {
        let count = rows.len().next_multiple_of(BLOCK);
        let mut words = vec![0; count * self.stride];
        for (row, vector) in
            self.words[rows.start * self.stride..rows.end * self.stride].chunks_exact(self.stride).enumerate()
        {
            let first = row / BLOCK * BLOCK * self.stride + row % BLOCK;
            vector.iter().enumerate().for_each(|(word, value)| words[first + word * BLOCK] = *value);
        }
        words
    }
}

impl Album {
    /// Copies vectors of `dimension` components to a device.
    ///
    /// # Errors
    /// When the device has no memory for them, or fails.
    ///
    /// # Panics
    /// When components and factors differ in number, or there is no component.
    pub fn new(device: &Device, vectors: &Vectors<'_>, dimension: usize) -> Result<Self, GpuError> {
        let packed = Packed::new(vectors, dimension);
        let rows = packed.factors.len();
        let most = match device {
            Device::Cpu => rows,
            Device::Gpu(gpu) => gpu.max_buffer_bytes() / (packed.stride * 4) / BLOCK * BLOCK,
        };
        let most = most.max(BLOCK);
        let mut parts = Vec::new();
        for first in (0..rows).step_by(most) {
            let last = (first + most).min(rows);
            let (words, factors) = (packed.in_blocks(first..last), &packed.factors[first..last]);
            let memory = match device {
                Device::Cpu => Memory::Host { words, factors: factors.to_vec() },
                Device::Gpu(gpu) => Memory::Device {
                    words: gpu.upload(bytemuck::cast_slice(&words))?,
                    factors: gpu.upload(bytemuck::cast_slice(factors))?,
                },
            };
            parts.push(Part { first, rows: last - first, stride: packed.stride, memory });
        }
        Ok(Self { device: device.clone(), kind: packed.kind, dimension, parts })
    }

    /// Components of a vector.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// The number of vectors.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.rows).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }
}
