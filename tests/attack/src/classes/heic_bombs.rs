//! HEIC files that claim or ask for far more than they contain.

use anyhow::Context as _;
use photofinish_tests::harness::test_photo::TestPhoto;

use crate::wire;

/// The size of the table of locations that claims the most: each entry of six bytes has 65,535 parts of none.
const LOCATION_BYTES: usize = 600_000;

/// Each file with its name. None of them is a whole picture.
pub(super) fn make_files() -> anyhow::Result<Vec<(&'static str, Vec<u8>)>> {
    let photo = TestPhoto::new(600, 40);
    let (width, height) = photo.pixels().dimensions();
    let options = heifer::EncodeOptions { quality: 50, max_threads: 1 };
    let whole =
        heifer::encode_rgb8(width, height, photo.pixels().as_raw(), &options).context("encoding HEIC")?;
    let changed = |name: &[u8; 4], offset: usize, bytes: &[u8]| -> anyhow::Result<Vec<u8>> {
        let at = wire::find(&whole, name).context("a box of the file")? + offset;
        let mut file = whole.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(file)
    };
    Ok(vec![
        // Behind the name, a version and flags.
        ("heic-claims-4-gigapixels.heic", changed(b"ispe", 8, &[0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff])?),
        ("heic-of-endless-tables.heic", changed(b"iinf", 8, &[0xff; 2])?[..200].to_vec()),
        ("heic-of-endless-parts.heic", with_endless_parts()),
        ("heic-cut.heic", whole[..whole.len() / 2].to_vec()),
    ])
}

/// Tables alone: locations whose entries have parts without any field.
fn with_endless_parts() -> Vec<u8> {
    let plain_box = |name: &[u8; 4], content: &[u8]| {
        [&(content.len() as u32 + 8).to_be_bytes(), &name[..], content].concat()
    };
    let mut locations = vec![0, 0, 0, 0, 0, 0, 0xff, 0xff];
    locations.resize(LOCATION_BYTES, 0xff);
    let tables = [&[0; 4][..], &plain_box(b"iloc", &locations)].concat();
    [plain_box(b"ftyp", b"heic\0\0\0\0mif1"), plain_box(b"meta", &tables)].concat()
}
