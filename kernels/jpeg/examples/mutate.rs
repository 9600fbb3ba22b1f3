//! Damages files at random and compares verdicts and pixels with those of libjpeg-turbo: `mutate COUNT FILE...`. Fails if
//! anything that libjpeg-turbo warns of is taken for whole. Without files it damages drawings.

#[path = "../tests/turbo/files.rs"]
mod files;
#[path = "../tests/turbo/mutate.rs"]
mod mutate;
#[path = "../tests/turbo/mutation.rs"]
mod mutation;
#[path = "../tests/turbo/reference.rs"]
mod reference;

use std::process::ExitCode;

use photofinish_jpeg::Header;

/// Photos above are slow to decode a hundred thousand times.
const MAX_BYTES: usize = 300_000;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let count = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(10_000);
    let mut originals: Vec<Vec<u8>> = arguments.filter_map(|path| std::fs::read(path).ok()).collect();
    originals.retain(|file| file.len() <= MAX_BYTES && Header::read(file).is_ok());
    for sampling in files::SAMPLINGS {
        originals.extend([60, 95].map(|quality| files::encode((203, 122), quality, sampling, quality > 90)));
    }
    let tally = mutation::run(&originals, 0..count);
    println!(
        "{count} damaged files of {}: {} whole, {} damaged (of which {} without a warning of libjpeg-turbo), {} refused",
        originals.len(),
        tally.whole,
        tally.damaged,
        tally.stricter,
        tally.refused
    );
    println!("{} with other pixels: {:#?}", tally.differing.len(), tally.differing);
    println!("{} whole where libjpeg-turbo warns: {:#?}", tally.laxer.len(), tally.laxer);
    if tally.laxer.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
