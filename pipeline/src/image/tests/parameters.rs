//! Scan headers that do not end in `00 3f 00`, as many phones write them: they say which coefficients a scan has, and which of
//! their bits, which means nothing in a sequential file.

use super::memory::grey_in_three_scans;
use super::*;

const ODD: [[u8; 3]; 3] = [[0, 0, 0], [0, 63, 1], [0xff; 3]];

/// A file whose scan headers all end in these bytes.
pub(super) fn with_parameters(file: &[u8], parameters: [u8; 3]) -> Vec<u8> {
    let mut copy = file.to_vec();
    for scan in (0..file.len() - 4).filter(|at| file[*at..*at + 2] == [0xff, 0xda]) {
        let end = scan + 2 + usize::from(u16::from_be_bytes([file[scan + 2], file[scan + 3]]));
        copy[end - 3..end].copy_from_slice(&parameters);
    }
    assert_ne!(copy, file);
    copy
}

/// Sequential files for our decoder, and for libjpeg-turbo alone: of unusual sampling, and in several scans.
fn sequential_files() -> [(&'static str, Vec<u8>); 3] {
    let scene = scene(320, 240);
    let sampled = jpeg(&scene, |compressor| compressor.set_subsamp(Subsamp::Sub1x2).unwrap());
    [
        ("of a camera", jpeg(&scene, |_| {})),
        ("of unusual sampling", sampled),
        ("in three scans", grey_in_three_scans(320, 240).1),
    ]
}

#[test]
fn a_sequential_file_has_the_same_pixels_whatever_the_parameters_of_its_scans() {
    let mut decoder = Decoder::new(LIMITS, BufferPool::default()).unwrap();
    let mut decode = |file: &[u8]| {
        let plan = decoder.plan(file, |_| 320).unwrap();
        decoder.decode(file, &plan).map(|picture| picture.frame().pixels().to_vec())
    };
    for (name, usual) in sequential_files() {
        let expected = decode(&usual).unwrap();
        for parameters in ODD {
            let pixels = decode(&with_parameters(&usual, parameters));
            let pixels = pixels.unwrap_or_else(|poison| panic!("{name}, {parameters:?}: {poison}"));
            assert!(pixels == expected, "{name}, {parameters:?}: other pixels");
            // The decoder has met a warning.
            assert!(decode(&usual).unwrap() == expected, "{name} after {parameters:?}: other pixels");
        }
    }
}

#[test]
fn odd_parameters_hide_no_damage() {
    for (name, usual) in sequential_files() {
        let file = with_parameters(&usual, [0, 0, 0]);
        let mut broken = file.clone();
        let last_scan = file.windows(2).rposition(|pair| pair == [0xff, 0xda]).unwrap();
        let data =
            last_scan + 2 + usize::from(u16::from_be_bytes([file[last_scan + 2], file[last_scan + 3]]));
        // Some of the data is missing, and the file has its end marker.
        broken.drain(data + (file.len() - data) / 2..file.len() - 2);
        let cut = &file[..file.len() - (file.len() - data) / 2];
        for damaged in [cut, &broken, &file[..file.len() - 2]] {
            assert_eq!(
                decode_failure(damaged),
                FailureReason::CorruptImage,
                "{name}, {} bytes",
                damaged.len()
            );
        }
    }
}

#[test]
fn parameters_that_a_progressive_file_cannot_have_are_damage() {
    let usual = jpeg(&scene(320, 240), |compressor| compressor.set_progressive(true).unwrap());
    assert!(decode(&usual, 320).is_ok());
    // All coefficients at once, and what no scan has.
    for parameters in [[0, 63, 0], [0xff; 3]] {
        assert_eq!(decode_failure(&with_parameters(&usual, parameters)), FailureReason::CorruptImage);
    }
}
