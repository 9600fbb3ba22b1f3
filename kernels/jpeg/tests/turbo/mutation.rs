//! Damages files at random, reproducibly, and compares verdicts and pixels with those of libjpeg-turbo.

use photofinish_jpeg::{Decoder, Header, Scale};

use super::mutate::{Random, mutate};
use super::reference;

/// Larger pictures are left out: a damaged size may be that of gigabytes.
const MAX_PIXELS: usize = 4_000_000;

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

/// Damages each time one of the files, and decodes it with and without vectors.
pub fn run(files: &[Vec<u8>], seeds: std::ops::Range<u64>) -> Tally {
    let mut decoders = [Decoder::new(), Decoder::portable()];
    let mut tally = Tally::default();
    for seed in seeds {
        let mut random = Random::new(seed);
        let file = mutate(&files[random.below(files.len())], &mut random);
        let scale = Scale::ALL[random.below(Scale::ALL.len())];
        compare(&file, scale, &mut decoders[usize::from(seed % 4 == 0)], seed, &mut tally);
    }
    tally
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
