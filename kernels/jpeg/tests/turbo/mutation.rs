//! Damages files at random, reproducibly, and compares verdicts and pixels with those of libjpeg-turbo.

use photofinish_jpeg::{Decoder, Header, Scale};

use super::reference;

/// Larger pictures are left out: a damaged size may be that of gigabytes.
const MAX_PIXELS: usize = 4_000_000;

/// Where most header segments are.
const HEADER_BYTES: usize = 900;

/// What came of damaged files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Decoded here, and without a warning by libjpeg-turbo.
    pub whole: usize,
    /// Found damaged here.
    pub damaged: usize,
    /// Of these, read without a warning by libjpeg-turbo.
    pub stricter: usize,
    /// Not decoded here.
    pub refused: usize,
    /// What must not be: whole here, and a warning or an error of libjpeg-turbo. The seed and the warning.
    pub laxer: Vec<String>,
    /// Whole, with other pixels than libjpeg-turbo's. The seed and how many bytes.
    pub differing: Vec<String>,
}

/// A reproducible source of numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as usize % limit.max(1)
    }
}

/// Damages each time one of the files, and decodes it with and without vectors.
pub fn run(files: &[Vec<u8>], seeds: std::ops::Range<u64>) -> Tally {
    let mut decoders = [Decoder::new(), Decoder::portable()];
    let mut tally = Tally::default();
    for seed in seeds {
        let mut random = Random(seed.wrapping_mul(0x5851_f42d_4c95_7f2d));
        let file = mutate(&files[random.below(files.len())], &mut random);
        let scale = Scale::ALL[random.below(Scale::ALL.len())];
        compare(&file, scale, &mut decoders[usize::from(seed % 4 == 0)], seed, &mut tally);
    }
    tally
}

fn mutate(file: &[u8], random: &mut Random) -> Vec<u8> {
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

fn compare(file: &[u8], scale: Scale, decoder: &mut Decoder, seed: u64, tally: &mut Tally) {
    let header = match Header::read(file) {
        Ok(header) if header.size().width * header.size().height <= MAX_PIXELS => header,
        _ => {
            tally.refused += 1;
            return;
        }
    };
    let mut ours = vec![0; header.rgb_bytes(scale)];
    let theirs = reference::decode(file, &header, scale);
    match (decoder.decode(&header, scale, &mut ours), theirs) {
        (Ok(()), Ok(theirs)) => {
            tally.whole += 1;
            let differing = ours.iter().zip(&theirs).filter(|(a, b)| a != b).count();
            if differing > 0 {
                tally.differing.push(format!("seed {seed}, {scale:?}: {differing} bytes"));
            }
        }
        (Ok(()), Err(warning)) => tally.laxer.push(format!("seed {seed}, {scale:?}: {warning}")),
        (Err(_), theirs) => {
            tally.damaged += 1;
            tally.stricter += usize::from(theirs.is_ok());
        }
    }
}
