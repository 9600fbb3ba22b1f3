//! What fuzzing needs of this crate: the code that reads the files of strangers. Compiled only with the cargo feature
//! `fuzzing`.

use crate::image::decoder::Decoder;
use crate::image::exif::ExifData;
use crate::image::pool::BufferPool;
use crate::image::upright_resizer::UprightResizer;
use crate::settings::Limits;

/// Small, so that a file that claims more is refused before anything is allocated for it.
const LIMITS: Limits = Limits { max_file_bytes: 2 << 20, max_pixels: 1_000_000, reads_heic: true };
/// The bytes per pixel that decoding may take, as the decoder's own limit.
const MAX_BYTES_PER_PIXEL: u64 = 9;
/// The long side of the picture that is made of a photo, pixels.
const LONG_SIDE: u32 = 64;

/// Reads a file as the pipeline reads a photo: its metadata, its header, its pixels at two scales, and makes a small
/// upright picture of it. Returns whether it is a photo at both scales.
///
/// # Panics
/// When a limit or a promised size is exceeded.
pub fn check_photo(file: &[u8]) -> bool {
    let exif = ExifData::read(file);
    let pool = BufferPool::default();
    let mut decoder = Decoder::new(LIMITS, pool.clone()).expect("a decoder is a few kilobytes");
    let limit = LIMITS.max_pixels * MAX_BYTES_PER_PIXEL + LIMITS.max_file_bytes;
    let mut photos = 0;
    for long_side in [LONG_SIDE, u32::MAX] {
        let Ok(plan) = decoder.plan(file, |_| long_side) else { continue };
        assert!(plan.stored_size.area() as u64 <= LIMITS.max_pixels, "{:?}", plan.stored_size);
        assert!(plan.peak_bytes as u64 <= limit, "decoding takes {} bytes", plan.peak_bytes);
        let Ok(picture) = decoder.decode(file, &plan) else { continue };
        assert_eq!(picture.size(), plan.decoded_size, "the picture is not what was planned");
        let upright = exif.orientation.transform_size(plan.stored_size);
        let size = upright.fit_within(LONG_SIDE);
        let small = UprightResizer::new(pool.clone()).resize_upright(picture.frame(), exif.orientation, size);
        assert_eq!(small.size(), size, "the small picture is not what was planned");
        photos += 1;
    }
    photos == 2
}

/// Reads only the metadata of a file. Returns whether it says when, and with which camera, the photo was taken.
pub fn check_metadata(file: &[u8]) -> bool {
    let exif = ExifData::read(file);
    exif.taken_at.is_some() && exif.camera.is_some()
}
