//! Damages files at random, reproducibly.

/// Where most header segments are.
const HEADER_BYTES: usize = 900;

/// A reproducible source of numbers (SplitMix64).
pub struct Random(u64);

impl Random {
    /// The source of that seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x5851_f42d_4c95_7f2d))
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as usize % limit.max(1)
    }
}

/// The file with some bytes changed, cut out or put in, or cut short.
pub fn mutate(file: &[u8], random: &mut Random) -> Vec<u8> {
    let mut file = file.to_vec();
    for _ in 0..=random.below(3) {
        // Some of the damage is done to the header, some to the end, and most anywhere.
        let at = match random.below(8) {
            0 => random.below(file.len().min(HEADER_BYTES)),
            1 => file.len() - 1 - random.below(file.len().min(8)),
            _ => random.below(file.len()),
        };
        match random.below(7) {
            0 => file.truncate(at.max(4)),
            1 => file[at] = 0xff,
            2 => file[at] = random.below(256) as u8,
            3 => drop(file.splice(at..(at + random.below(40)).min(file.len()), std::iter::empty())),
            4 => drop(file.splice(at..at, [0xff, 0xd0 + random.below(16) as u8])),
            _ => file[at] ^= 1 << random.below(8),
        }
    }
    file
}
