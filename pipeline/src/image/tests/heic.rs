//! HEIC files, made here by an encoder, and a real one.

use heifer::EncodeOptions;

use super::*;

/// A wave and two gradients as a HEIC file of high quality; in tiles of 512 pixels where it is larger than one.
fn heic(scene: &RgbImage) -> Vec<u8> {
    let options = EncodeOptions { quality: 95, max_threads: 1 };
    heifer::encode_rgb8(scene.width(), scene.height(), scene.as_raw(), &options).unwrap()
}

/// Peak signal-to-noise ratio, decibels.
fn psnr(one: &[u8], other: &[u8]) -> f64 {
    assert_eq!(one.len(), other.len());
    let squares: f64 = one.iter().zip(other).map(|(a, b)| f64::from(a.abs_diff(*b)).powi(2)).sum();
    10.0 * (255.0_f64.powi(2) * one.len() as f64 / squares.max(1e-9)).log10()
}

/// Puts a property that turns the picture into the place of its colours. Both are boxes of their own, so that the sizes around
/// them stay.
fn turned(mut file: Vec<u8>, quarters: u8) -> Vec<u8> {
    let at = file.windows(4).position(|four| four == b"colr").unwrap();
    file[at..at + 4].copy_from_slice(b"irot");
    file[at + 4] = quarters;
    file
}

#[test]
fn pictures_of_any_size_are_decoded_whole_and_in_tiles() {
    for (width, height) in [(64, 48), (101, 67), (640, 480), (1100, 530)] {
        let scene = scene(width, height);
        let picture = decode(&heic(&scene), u32::MAX).unwrap();
        assert_eq!(picture.size(), Size { width, height });
        let similar = psnr(picture.frame().pixels(), scene.as_raw());
        assert!(similar > 30.0, "{width} x {height}: {similar} dB");
    }
}

#[test]
fn a_picture_is_turned_as_the_file_says() {
    let scene = scene(96, 64);
    let upright = decode(&turned(heic(&scene), 0), u32::MAX).unwrap();
    // Against the clock: the upper left corner comes from the upper right one.
    let left = decode(&turned(heic(&scene), 1), u32::MAX).unwrap();
    assert_eq!(left.size(), Size { width: 64, height: 96 });
    let pixel = |picture: &PooledPicture, x: usize, y: usize| {
        let at = (y * picture.size().width as usize + x) * 3;
        picture.frame().pixels()[at..at + 3].to_vec()
    };
    assert_eq!(pixel(&left, 0, 0), pixel(&upright, 95, 0));
    assert_eq!(pixel(&left, 63, 95), pixel(&upright, 0, 63));
}

#[test]
fn a_file_cut_off_anywhere_is_refused() {
    let whole = heic(&scene(96, 64));
    for end in 0..whole.len() {
        let reason = decode_failure(&whole[..end]);
        let expected = [FailureReason::CorruptImage, FailureReason::UnsupportedFormat];
        assert!(expected.contains(&reason), "cut off after {end} of {} bytes: {reason:?}", whole.len());
    }
}

#[test]
fn what_a_file_claims_is_compared_with_the_limits_first() {
    let mut file = heic(&scene(96, 64));
    let at = file.windows(4).position(|four| four == b"ispe").unwrap() + 8;
    file[at..at + 8].copy_from_slice(&[0, 0, 0x80, 0, 0, 0, 0x80, 0]);
    assert_eq!(decode_failure(&file), FailureReason::TooManyPixels);
    file[at..at + 8].copy_from_slice(&[0xff; 8]);
    assert_eq!(decode_failure(&file), FailureReason::TooManyPixels);
    file[at..at + 8].copy_from_slice(&[0; 8]);
    assert_eq!(decode_failure(&file), FailureReason::CorruptImage);
    // A file that claims less than is coded in it.
    let mut file = heic(&scene(400, 300));
    let at = file.windows(4).position(|four| four == b"ispe").unwrap() + 8;
    file[at..at + 8].copy_from_slice(&[0, 0, 0, 16, 0, 0, 0, 16]);
    assert_eq!(decode_failure(&file), FailureReason::CorruptImage);
}

#[test]
fn switched_off_it_is_an_unsupported_format() {
    let limits = Limits { reads_heic: false, ..LIMITS };
    let mut decoder = Decoder::new(limits, PixelPool::default()).unwrap();
    let refused = decoder.plan(&heic(&scene(96, 64)), |_| 2048).map(drop).unwrap_err();
    assert_eq!(refused.reason, FailureReason::UnsupportedFormat);
}

#[test]
fn a_real_file_is_read() {
    let Some(photos) = shared_photo_dir() else { return };
    let file = std::fs::read(photos.join("files/libheif/tests/data/rainbow-451x461.heic")).unwrap();
    let picture = decode(&file, u32::MAX).unwrap();
    assert_eq!(picture.size(), Size { width: 451, height: 461 });
    let colors: std::collections::BTreeSet<&[u8]> = picture.frame().pixels().chunks(3).collect();
    assert!(colors.len() > 1000, "{} colours of a rainbow", colors.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn no_damage_makes_it_panic(damage in prop::collection::vec((0_usize..4000, any::<u8>()), 1..12)) {
        let mut file = heic(&scene(96, 64));
        for (offset, value) in damage {
            let offset = offset % file.len();
            file[offset] = value;
        }
        drop(decode(&file, u32::MAX).map(drop));
    }
}
