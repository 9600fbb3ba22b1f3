//! The pixels of HEIC files beside those of `heif-convert`, Debian's reader: it has another decoder and other authors.
//! Without Debian's package libheif-examples nothing is compared, and the test says so.

use std::path::Path;
use std::process::Command;

use image::{ImageReader, RgbImage};
use photofinish_kernels::image::frame::Picture;
use photofinish_kernels::image::orient::apply_orientation;

use super::decode;
use super::files::{HeicFile, mirror_box, rotation_box};
use crate::image::exif::ExifData;
use crate::testing::shared_photo_dir;

/// The least likeness, decibels: rounding differs, and how colour between two pixels is made up.
const MIN_PSNR: f64 = 40.0;

/// Returns whether both programs are there.
///
/// # Panics
/// When one is not, and `REQUIRE_SHARED=1`.
fn has_programs() -> bool {
    let runs = |name: &str| Command::new(name).arg("--help").output().is_ok();
    let has_both = runs("heif-convert") && runs("heif-enc");
    #[expect(clippy::disallowed_methods, reason = "a switch of the tests, not a setting of the service")]
    let is_required = std::env::var("REQUIRE_SHARED").is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
    assert!(has_both || !is_required, "REQUIRE_SHARED=1, and there is no heif-convert or heif-enc");
    if !has_both {
        println!("SKIPPED: no heif-convert and heif-enc (Debian's package libheif-examples)");
    }
    has_both
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Decodes a file and turns it upright, as the reader does.
fn decode_upright(file: &[u8]) -> Picture {
    let stored = decode(file).unwrap();
    let size = stored.size();
    let picture = Picture::new(stored.frame().pixels().to_vec(), size.width, size.height).unwrap();
    apply_orientation(picture, ExifData::read(file).orientation)
}

fn convert(heic: &Path) -> RgbImage {
    let png = heic.with_extension("png");
    run("heif-convert", &[heic.to_str().unwrap(), png.to_str().unwrap()]);
    ImageReader::open(png).unwrap().decode().unwrap().to_rgb8()
}

fn psnr(a: &[u8], b: &[u8]) -> f64 {
    let squares: f64 = a.iter().zip(b).map(|(a, b)| f64::from(a.abs_diff(*b)).powi(2)).sum();
    10.0 * (255.0 * 255.0 * a.len() as f64 / squares.max(1.0)).log10()
}

#[track_caller]
fn assert_alike(heic: &Path, what: &str) {
    let (ours, theirs) = (decode_upright(&std::fs::read(heic).unwrap()), convert(heic));
    assert_eq!((ours.width(), ours.height()), theirs.dimensions(), "{what}");
    let likeness = psnr(ours.frame().pixels(), theirs.as_raw());
    println!("{what}: {likeness:.1} dB");
    assert!(likeness >= MIN_PSNR, "{what}: {likeness:.1} dB");
}

/// Soft shapes, as steep as those of photos whatever the size: between two samples of colour each reader makes up its own.
fn drawn(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| {
        let wave = |at: u32, length: f32| (at as f32 / length).sin() * 60.0;
        let red = wave(x, 47.0) + wave(y, 31.0) + 128.0;
        let green = wave(x + y, 71.0) + 150.0;
        let blue = wave(x, 90.0) - wave(y, 60.0) + 120.0;
        image::Rgb([red, green, blue].map(|value| value as u8))
    })
}

#[test]
fn a_real_file_looks_as_it_does_to_another_reader() {
    let Some(photos) = shared_photo_dir() else { return };
    if !has_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("rainbow.heic");
    std::fs::copy(photos.join("files/libheif/tests/data/rainbow-451x461.heic"), &copy).unwrap();
    assert_alike(&copy, "rainbow-451x461");
}

#[test]
fn files_of_another_encoder_look_as_they_do_to_its_reader() {
    if !has_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [png, heic] = ["drawn.png", "drawn.heic"].map(|name| folder.path().join(name));
    let [png_text, heic_text] = [&png, &heic].map(|path| path.to_str().unwrap());
    for (width, height) in [(640, 480), (333, 251), (65, 64), (64, 65), (1001, 17)] {
        drawn(width, height).save(&png).unwrap();
        for colour in ["420", "422", "444"] {
            let option = format!("chroma={colour}");
            run("heif-enc", &["-q", "90", "-p", &option, png_text, "-o", heic_text]);
            assert_alike(&heic, &format!("{width} x {height}, {colour}"));
        }
    }
    image::DynamicImage::ImageRgb8(drawn(320, 200)).to_rgb16().save(&png).unwrap();
    run("heif-enc", &["-q", "90", "-b", "10", png_text, "-o", heic_text]);
    assert_alike(&heic, "10 bits");
    image::DynamicImage::ImageRgb8(drawn(320, 200)).to_luma8().save(&png).unwrap();
    run("heif-enc", &["-q", "90", png_text, "-o", heic_text]);
    assert_alike(&heic, "grey");
    drawn(320, 200).save(&png).unwrap();
    run(
        "heif-enc",
        &["-q", "90", "--full_range_flag", "0", "--matrix_coefficients", "1", png_text, "-o", heic_text],
    );
    assert_alike(&heic, "the colours of films");
}

#[test]
fn turned_and_tiled_files_look_as_they_do_to_another_reader() {
    if !has_programs() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let heic = folder.path().join("made.heic");
    let mut turns: Vec<Vec<Vec<u8>>> = (1..4).map(|quarters| vec![rotation_box(quarters)]).collect();
    turns.extend([vec![mirror_box(0)], vec![mirror_box(1)], vec![rotation_box(1), mirror_box(0)]]);
    for properties in turns {
        let file = HeicFile::single(&drawn(128, 96), &properties);
        std::fs::write(&heic, file.to_bytes()).unwrap();
        assert_alike(&heic, &format!("{properties:?}"));
    }
    // Several tiles of one picture, as phones write them; the last ones reach beyond it.
    let picture = drawn(1101, 701);
    let options = heifer::EncodeOptions { quality: 90, max_threads: 1 };
    let file = heifer::encode_rgb8(1101, 701, picture.as_raw(), &options).unwrap();
    std::fs::write(&heic, file).unwrap();
    assert_alike(&heic, "3 x 2 tiles");
}
