//! Randomness that is the same each time: textures by position, numbers by seed.

/// Mixes the bits of a number (the finaliser of splitmix64).
fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// A number from 0 to 1 for a place of a grid.
pub fn at(seed: u64, x: i64, y: i64) -> f32 {
    let place =
        (x as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (y as u64).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    (mixed(seed.wrapping_add(place)) >> 40) as f32 / (1u64 << 24) as f32
}

/// Like [`at`], smooth between the places of the grid.
pub fn smooth(seed: u64, x: f32, y: f32) -> f32 {
    let (column, row) = (x.floor(), y.floor());
    let (right, down) = (eased(x - column), eased(y - row));
    let (column, row) = (column as i64, row as i64);
    let top = mix(at(seed, column, row), at(seed, column + 1, row), right);
    let bottom = mix(at(seed, column, row + 1), at(seed, column + 1, row + 1), right);
    mix(top, bottom, down)
}

/// Three sizes of [`smooth`] on top of each other: clouds, leaves, gravel.
pub fn cloudy(seed: u64, x: f32, y: f32) -> f32 {
    (4.0 * smooth(seed, x, y) + 2.0 * smooth(seed + 1, 2.0 * x, 2.0 * y) + smooth(seed + 2, 4.0 * x, 4.0 * y))
        / 7.0
}

/// What a sensor adds to a pixel: bell-shaped, of standard deviation 1.
pub fn grain(seed: u64, x: i64, y: i64) -> f32 {
    let bits = mixed(seed ^ mixed((y as u64) << 32 | x as u64));
    let sum: u64 = (0..4).map(|part| bits >> (16 * part) & 0xffff).sum();
    // Four uniform numbers: mean 2, standard deviation 1 / sqrt(3).
    (sum as f32 / 65_535.0 - 2.0) * 3f32.sqrt()
}

/// Numbers one after another.
#[derive(Clone, Debug)]
pub struct Dice {
    state: u64,
}

impl Dice {
    /// Starts a sequence.
    pub fn new(seed: u64) -> Self {
        Self { state: mixed(seed) }
    }

    /// A number between two others.
    pub fn between(&mut self, low: f32, high: f32) -> f32 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        low + (high - low) * ((mixed(self.state) >> 40) as f32 / (1u64 << 24) as f32)
    }

    /// One of some things.
    pub fn one_of<T: Copy>(&mut self, things: &[T]) -> T {
        let index = self.between(0.0, things.len() as f32) as usize;
        things[index.min(things.len() - 1)]
    }
}

fn mix(from: f32, to: f32, share: f32) -> f32 {
    from + (to - from) * share
}

fn eased(share: f32) -> f32 {
    share * share * (3.0 - 2.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grain_has_the_spread_of_a_unit() {
        let values: Vec<f32> = (0..10_000).map(|i| grain(7, i % 100, i / 100)).collect();
        let mean = values.iter().sum::<f32>() / 10_000.0;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f32>() / 10_000.0;
        assert!(mean.abs() < 0.05, "mean {mean}");
        assert!((variance - 1.0).abs() < 0.05, "variance {variance}");
    }

    #[test]
    fn the_same_seed_throws_the_same_dice() {
        let (mut one, mut other) = (Dice::new(5), Dice::new(5));
        for _ in 0..100 {
            assert_eq!(one.between(-1.0, 1.0), other.between(-1.0, 1.0));
        }
    }
}
