//! Deterministic randomness: noise textures by position, random numbers by seed.

/// Mixes the bits of a number (the finaliser of splitmix64).
fn mix_bits(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Returns a random number from 0 to 1 for a point of an integer grid.
pub fn grid_value(seed: u64, x: i64, y: i64) -> f32 {
    let position =
        (x as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (y as u64).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    (mix_bits(seed.wrapping_add(position)) >> 40) as f32 / (1u64 << 24) as f32
}

/// Value noise: [`grid_value`], interpolated smoothly between the points of the grid; 0 to 1.
pub fn smooth_noise(seed: u64, x: f32, y: f32) -> f32 {
    let (column, row) = (x.floor(), y.floor());
    let (right, down) = (smoothstep(x - column), smoothstep(y - row));
    let (column, row) = (column as i64, row as i64);
    let top = lerp(grid_value(seed, column, row), grid_value(seed, column + 1, row), right);
    let bottom = lerp(grid_value(seed, column, row + 1), grid_value(seed, column + 1, row + 1), right);
    lerp(top, bottom, down)
}

/// Three octaves of [`smooth_noise`], 0 to 1: clouds, leaves, gravel.
pub fn fractal_noise(seed: u64, x: f32, y: f32) -> f32 {
    (4.0 * smooth_noise(seed, x, y)
        + 2.0 * smooth_noise(seed + 1, 2.0 * x, 2.0 * y)
        + smooth_noise(seed + 2, 4.0 * x, 4.0 * y))
        / 7.0
}

/// Sensor noise of a pixel: approximately normal, of mean 0 and standard deviation 1.
pub fn sensor_grain(seed: u64, x: i64, y: i64) -> f32 {
    let bits = mix_bits(seed ^ mix_bits((y as u64) << 32 | x as u64));
    let sum: u64 = (0..4).map(|part| bits >> (16 * part) & 0xffff).sum();
    // Four uniform numbers: mean 2, standard deviation 1 / sqrt(3).
    (sum as f32 / 65_535.0 - 2.0) * 3f32.sqrt()
}

/// A sequence of random numbers.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Starts the sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: mix_bits(seed) }
    }

    /// Returns a number from `low` to `high`, uniformly distributed.
    pub fn uniform(&mut self, low: f32, high: f32) -> f32 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        low + (high - low) * ((mix_bits(self.state) >> 40) as f32 / (1u64 << 24) as f32)
    }

    /// Returns one of some items.
    ///
    /// # Panics
    /// When there are none.
    pub fn choose<T: Copy>(&mut self, items: &[T]) -> T {
        let index = self.uniform(0.0, items.len() as f32) as usize;
        items[index.min(items.len() - 1)]
    }
}

fn lerp(from: f32, to: f32, fraction: f32) -> f32 {
    from + (to - from) * fraction
}

fn smoothstep(fraction: f32) -> f32 {
    fraction * fraction * (3.0 - 2.0 * fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grain_has_unit_variance() {
        let values: Vec<f32> = (0..10_000).map(|i| sensor_grain(7, i % 100, i / 100)).collect();
        let mean = values.iter().sum::<f32>() / 10_000.0;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f32>() / 10_000.0;
        assert!(mean.abs() < 0.05, "mean {mean}");
        assert!((variance - 1.0).abs() < 0.05, "variance {variance}");
    }

    #[test]
    fn the_same_seed_gives_the_same_sequence() {
        let (mut one, mut other) = (Rng::new(5), Rng::new(5));
        for _ in 0..100 {
            assert_eq!(one.uniform(-1.0, 1.0), other.uniform(-1.0, 1.0));
        }
    }
}
