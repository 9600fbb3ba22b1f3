//! Feeds damaged input to the code that reads it first: photos, EXIF data, JSON bodies of every operation, cursors and signed
//! URLs. Inputs are valid ones that `mutate` changes, the same for the same seed and number.
//!
//! [`campaign`] runs the targets in child processes, so that an abort or an endless loop is noticed and its input saved;
//! the tests run a few thousand inputs of each in their own process.

pub mod campaign;
pub mod child;
#[cfg(feature = "heic")]
mod heic;
mod mutate;
mod targets;

use std::path::Path;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

pub use targets::TARGET_NAMES;

use crate::fuzz::mutate::Structure;

/// Something that reads input from outside.
pub struct FuzzTarget {
    name: &'static str,
    structure: Structure,
    seeds: Vec<Vec<u8>>,
    check: Check,
}

/// Reads input, and returns whether it was accepted; panics when it violates a property.
type Check = Box<dyn Fn(&[u8]) -> bool>;

impl FuzzTarget {
    /// The target of this name, with its valid inputs; `scratch` is a folder that it may use.
    ///
    /// # Errors
    /// When there is no such target, or its valid inputs cannot be made or are refused.
    ///
    /// # Panics
    /// When a valid input violates a property.
    pub fn new(name: &str, scratch: &Path) -> anyhow::Result<Self> {
        let target = targets::make_target(name, scratch)?;
        // Changes of what is refused at once would only reach the code that refuses it.
        for (number, seed) in target.seeds.iter().enumerate() {
            anyhow::ensure!(target.check(seed), "{name}: the valid input {number} is refused");
        }
        Ok(target)
    }

    /// The input of this number.
    pub fn input(&self, seed: u64, number: u64) -> Vec<u8> {
        let mixed = seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut rng = StdRng::seed_from_u64(mixed);
        let mut input = self.seeds[rng.random_range(0..self.seeds.len())].clone();
        // The unchanged input is one of them.
        for _ in 0..rng.random_range(0..6) {
            mutate::mutate(&mut input, self.structure, &mut rng);
        }
        input
    }

    /// Reads an input. Returns whether it was accepted.
    ///
    /// # Panics
    /// When reading it does, or violates a property.
    pub fn check(&self, input: &[u8]) -> bool {
        (self.check)(input)
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }
}
