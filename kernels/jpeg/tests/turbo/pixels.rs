//! Whole files have the same pixels.

use photofinish_jpeg::{Decoder, Header, Refusal, Scale};
use turbojpeg::{Compressor, Subsamp};

use super::files::{SAMPLINGS, draw, encode};
use super::reference;
use super::same::assert_same_pixels_at;

const SIZES: [(usize, usize); 11] = [
    (1, 1),
    (2, 3),
    (4, 17),
    (5, 16),
    (7, 9),
    (17, 31),
    (33, 47),
    (64, 48),
    (129, 64),
    (640, 483),
    (1001, 333),
];

/// Checks a file at all scales, with and without vectors.
pub fn assert_same_pixels(file: &[u8], decoders: &mut [Decoder], name: &str) {
    assert_same_pixels_at(Scale::ALL, file, decoders, name);
}

fn assert_drawings_are_the_same(sampling: Subsamp) {
    let mut decoders = [Decoder::new(), Decoder::portable()];
    for size in SIZES {
        for quality in [20, 75, 92, 100] {
            let file = encode(size, quality, sampling, quality == 92);
            assert_same_pixels(&file, &mut decoders, &format!("{size:?} {sampling:?} quality {quality}"));
        }
    }
}

#[test]
fn pixels_with_all_colours_are_those_of_libjpeg_turbo() {
    assert_drawings_are_the_same(Subsamp::None);
}

#[test]
fn pixels_with_half_the_colours_are_those_of_libjpeg_turbo() {
    assert_drawings_are_the_same(Subsamp::Sub2x1);
}

#[test]
fn pixels_with_a_quarter_of_the_colours_are_those_of_libjpeg_turbo() {
    assert_drawings_are_the_same(Subsamp::Sub2x2);
}

#[test]
fn pixels_without_colours_are_those_of_libjpeg_turbo() {
    assert_drawings_are_the_same(Subsamp::Gray);
}

#[test]
fn a_decoder_keeps_nothing_of_one_file_for_the_next() {
    let mut decoders = [Decoder::new(), Decoder::portable()];
    for size in [(200, 100), (64, 8), (1, 1), (300, 20), (16, 200)] {
        for sampling in SAMPLINGS {
            let file = encode(size, 90, sampling, true);
            assert_same_pixels(&file, &mut decoders, &format!("{size:?} {sampling:?}"));
        }
    }
}

#[test]
fn a_segment_longer_than_the_window_is_read_on() {
    let file = encode((1600, 1200), 97, Subsamp::Sub2x2, true);
    assert!(file.len() > 500_000, "{}", file.len());
    assert_same_pixels(&file, &mut [Decoder::new(), Decoder::portable()], "large");
}

#[test]
fn what_is_for_general_decoders_is_refused() {
    let encode_with = |set: &dyn Fn(&mut Compressor)| {
        let mut compressor = Compressor::new().unwrap();
        compressor.set_quality(90).unwrap();
        compressor.set_subsamp(Subsamp::Sub2x2).unwrap();
        set(&mut compressor);
        let pixels = draw(40, 30);
        let format = turbojpeg::PixelFormat::RGB;
        let image = turbojpeg::Image { pixels: &pixels[..], width: 40, pitch: 120, height: 30, format };
        compressor.compress_to_vec(image).unwrap()
    };
    let unsupported = [
        encode_with(&|c| c.set_progressive(true).unwrap()),
        encode_with(&|c| c.set_arithmetic(true).unwrap()),
        encode_with(&|c| c.set_subsamp(Subsamp::Sub1x2).unwrap()),
        encode_with(&|c| c.set_subsamp(Subsamp::Sub4x1).unwrap()),
        encode_with(&|c| {
            c.set_subsamp(Subsamp::None).unwrap();
            c.set_colorspace(turbojpeg::Colorspace::RGB).unwrap();
        }),
    ];
    for (i, file) in unsupported.iter().enumerate() {
        assert!(matches!(Header::read(file), Err(Refusal::Unsupported(_))), "file {i}");
    }
    for file in [&b""[..], b"\x89PNG\r\n", b"\xff\xd8\xff", b"\xff\xd8"] {
        assert_eq!(Header::read(file).unwrap_err(), Refusal::NotJpeg);
    }
}

/// Many phones write other bytes there. They mean something in progressive files only, and libjpeg-turbo warns.
#[test]
fn whatever_the_scan_header_says_of_coefficients_the_pixels_are_the_same() {
    let mut decoders = [Decoder::new(), Decoder::portable()];
    for sampling in SAMPLINGS {
        let usual = encode((97, 61), 90, sampling, true);
        for parameters in [[0, 0, 0], [0, 63, 1], [1, 63, 0], [0, 63, 0x10], [0xff; 3]] {
            let file = reference::with_scan_parameters(&usual, parameters);
            assert_ne!(file, usual);
            // What libjpeg-turbo decodes there is the usual file.
            assert_same_pixels(&file, &mut decoders, &format!("{sampling:?} {parameters:?}"));
        }
    }
}

#[test]
fn the_claimed_size_is_known_before_anything_is_allocated() {
    let mut file = encode((40, 30), 90, Subsamp::Sub2x2, false);
    let frame = file.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    file[frame + 5..frame + 9].copy_from_slice(&[0xff, 0xdc, 0xff, 0xdc]);
    let header = Header::read(&file).unwrap();
    assert_eq!((header.size().width, header.size().height), (65_500, 65_500));
    assert_eq!(header.rgb_bytes(Scale::Eighth), 8188 * 8188 * 3);
    file[frame + 8] += 1;
    assert!(matches!(Header::read(&file), Err(Refusal::Unsupported(_))));
}
