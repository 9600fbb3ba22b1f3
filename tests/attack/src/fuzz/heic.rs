//! Valid HEIC files, and how they are changed: boxes of a length and a name, within each other.

use anyhow::Context as _;
use photofinish_tests::harness::test_photo::TestPhoto;

/// Longer than a tile of the encoder, so that there is more than one.
const LONG_SIDE: u32 = 528;
const SHORT_SIDE: u32 = 24;

/// A single picture, an odd one, which is cut, a transparent one and a grid.
pub(super) fn make_seeds(photo: &TestPhoto) -> anyhow::Result<Vec<Vec<u8>>> {
    let single = encode(photo)?;
    let odd = encode(&TestPhoto::new(33, 17))?;
    let grid = encode(&TestPhoto::new(LONG_SIDE, SHORT_SIDE))?;
    let (width, height) = photo.pixels().dimensions();
    let rgba: Vec<u8> =
        photo.pixels().pixels().flat_map(|pixel| [pixel[0], pixel[1], pixel[2], pixel[1]]).collect();
    let transparent = heifer::encode_rgba8(width, height, &rgba, &options()).context("encoding HEIC")?;
    Ok(vec![single, odd, grid, transparent])
}

fn encode(photo: &TestPhoto) -> anyhow::Result<Vec<u8>> {
    let (width, height) = photo.pixels().dimensions();
    heifer::encode_rgb8(width, height, photo.pixels().as_raw(), &options()).context("encoding HEIC")
}

/// Small files, so that half of the changes hit the tables.
fn options() -> heifer::EncodeOptions {
    heifer::EncodeOptions { quality: 30, max_threads: 1 }
}
