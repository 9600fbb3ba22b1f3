//! Files that are damaged inside their scan, where libjpeg-turbo gives no warning of the codes themselves: what shows the
//! damage is that bytes are left over, and what our decoder says.

use image::imageops::crop_imm;
use turbojpeg::Decompressor;

use super::memory::find_marker;
use super::*;

/// Rows of pixels of an MCU with a quarter of the colours.
const MCU_ROWS: u32 = 16;

/// A picture whose scan is long for its size.
fn noisy_scene(width: u32, height: u32) -> RgbImage {
    let mut picture = scene(width, height);
    for (x, y, pixel) in picture.enumerate_pixels_mut() {
        let mixed = x.wrapping_mul(0x9e37_79b9) ^ y.wrapping_mul(0x85eb_ca6b);
        let noise = (mixed ^ (mixed >> 15)).wrapping_mul(0x2c1b_3c6d) >> 26;
        pixel.0 = pixel.0.map(|value| value.saturating_add(noise as u8));
    }
    picture
}

/// Where the entropy-coded bytes of a file with one scan begin.
fn scan_start(file: &[u8]) -> usize {
    let scan = find_marker(file, 0xda).unwrap();
    scan + 2 + usize::from(u16::from_be_bytes([file[scan + 2], file[scan + 3]]))
}

/// A JPEG with a restart marker after each row of MCUs, assembled from one file for each: the codes of a segment know nothing
/// of those before.
fn with_restarts(picture: &RgbImage) -> Vec<u8> {
    let (width, height) = picture.dimensions();
    let rows = (0..height).step_by(MCU_ROWS as usize);
    let files: Vec<Vec<u8>> =
        rows.map(|y| jpeg(&crop_imm(picture, 0, y, width, MCU_ROWS).to_image(), |_| {})).collect();
    let (frame, scan) = (find_marker(&files[0], 0xc0).unwrap(), find_marker(&files[0], 0xda).unwrap());
    let mut file = files[0][..scan].to_vec();
    file[frame + 5..frame + 7].copy_from_slice(&(height as u16).to_be_bytes());
    file.extend([0xff, 0xdd, 0, 4]);
    file.extend((width.div_ceil(MCU_ROWS) as u16).to_be_bytes());
    file.extend(&files[0][scan..scan_start(&files[0])]);
    for (number, part) in files.iter().enumerate() {
        if number > 0 {
            file.extend([0xff, 0xd0 + ((number - 1) % 8) as u8]);
        }
        file.extend(&part[scan_start(part)..part.len() - 2]);
    }
    file.extend([0xff, 0xd9]);
    file
}

/// The file with so many bytes of its scan overwritten with bytes from elsewhere in it.
fn overwrite(whole: &[u8], length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let (start, places) = (scan_start(whole), whole.len() - 2 - length - scan_start(whole));
    let mut place = || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        start + ((mixed ^ (mixed >> 31)) >> 11) as usize % places
    };
    let (to, from) = (place(), place());
    let mut file = whole.to_vec();
    file.copy_within(from..from + length, to);
    file
}

/// What libjpeg-turbo says of a file at full size, if anything.
fn warning_of(file: &[u8]) -> Option<String> {
    let mut turbo = Decompressor::new().unwrap();
    let header = turbo.read_header(file).unwrap();
    let (width, height, format) = (header.width, header.height, PixelFormat::RGB);
    let mut pixels = vec![0; width * height * 3];
    let image = Image { pixels: &mut pixels[..], width, pitch: width * 3, height, format };
    turbo.decompress(file, image).err().map(|error| error.to_string())
}

/// Whether a warning is of bytes that are left over: more than a camera leaves in front of a restart marker or the end marker.
fn is_of_left_over_bytes(warning: &str) -> bool {
    let Some((before, marker)) = warning.split_once(" extraneous bytes before marker ") else { return false };
    let count: u32 = before.rsplit(' ').next().unwrap().parse().unwrap();
    let harmless = match marker {
        "0xd9" => 16,
        restart if is_restart(restart) => 4,
        _ => 0,
    };
    count > harmless
}

/// Whether a marker, as libjpeg-turbo writes it, is one of the eight restart markers.
fn is_restart(marker: &str) -> bool {
    matches!(marker.as_bytes(), [b'0', b'x', b'd', b'0'..=b'7'])
}

/// Whether our decoder takes a file for whole at full size.
fn is_whole_here(file: &[u8]) -> bool {
    let header = photofinish_jpeg::Header::read(file).unwrap();
    let scale = photofinish_jpeg::Scale::Full;
    let mut pixels = vec![0; header.rgb_bytes(scale)];
    photofinish_jpeg::Decoder::new().decode(&header, scale, &mut pixels).is_ok()
}

#[test]
fn bytes_that_a_damaged_scan_leaves_over_are_damage() {
    let picture = noisy_scene(320, 240);
    for (name, whole) in [("plain", jpeg(&picture, |_| {})), ("with restarts", with_restarts(&picture))] {
        assert_eq!(warning_of(&whole), None, "{name}");
        let difference = mean_difference(decode(&whole, 320).unwrap().frame().pixels(), picture.as_raw());
        assert!(difference < 20.0, "{name}: {difference}");
        for length in [64, 4096] {
            let mut seen = 0;
            for seed in 0..400 {
                let damaged = overwrite(&whole, length, seed);
                let Some(warning) = warning_of(&damaged) else { continue };
                if !is_of_left_over_bytes(&warning) || is_whole_here(&damaged) {
                    continue;
                }
                let case = format!("{name}, {length} bytes, seed {seed}: {warning}");
                assert_eq!(decode_failure(&damaged), FailureReason::CorruptImage, "{case}");
                seen += 1;
            }
            assert!(seen > 50, "{name}, {length} bytes: only {seen} such files");
        }
    }
}

#[test]
fn up_to_four_bytes_before_a_restart_marker_are_harmless() {
    let whole = with_restarts(&noisy_scene(320, 240));
    let pixels = decode(&whole, 320).unwrap();
    let is_marker = |place: &usize| whole[*place] == 0xff && matches!(whole[place + 1], 0xd0..=0xd7);
    let markers: Vec<usize> = (scan_start(&whole)..whole.len() - 1).filter(is_marker).collect();
    assert_eq!(markers.len(), 14);
    let with_strays = |place: usize, count: usize| {
        let strays = vec![0x11_u8; count];
        [&whole[..place], &strays, &whole[place..]].concat()
    };
    let (mut harmless, mut damaged) = (0, 0);
    for place in markers {
        for count in 1..=4 {
            let file = with_strays(place, count);
            let case = format!("{count} bytes at {place}");
            assert!(!is_whole_here(&file), "{case}");
            let decoded = decode(&file, 320).expect(&case);
            assert!(decoded.frame().pixels() == pixels.frame().pixels(), "{case}: other pixels");
            // Of bytes that it has read in advance, libjpeg-turbo warns at a later marker.
            let warning = warning_of(&file).unwrap_or_default();
            let marker = warning.split_once(" extraneous bytes before marker ").map(|(_, marker)| marker);
            harmless += usize::from(marker.is_some_and(is_restart));
        }
        let file = with_strays(place, 40);
        if warning_of(&file).is_some_and(|warning| is_of_left_over_bytes(&warning)) {
            assert_eq!(decode_failure(&file), FailureReason::CorruptImage, "40 bytes at {place}");
            damaged += 1;
        }
    }
    assert!(harmless > 0 && damaged > 0, "{harmless} and {damaged} files");
}

/// The bytes of some bits, filled with ones, with stuffed zeros.
fn stuffed(bits: &str) -> Vec<u8> {
    let digits: Vec<u8> = bits.bytes().map(|digit| digit - b'0').collect();
    let bytes = digits.chunks(8).map(|byte| (0..8).fold(0, |all, i| all << 1 | byte.get(i).unwrap_or(&1)));
    bytes.flat_map(|byte| if byte == 0xff { vec![0xff, 0] } else { vec![byte] }).collect()
}

#[test]
fn a_few_bytes_before_the_end_marker_are_harmless_unless_the_scan_is_broken() {
    let grey = jpeg(&scene(8, 8), |compressor| compressor.set_subsamp(Subsamp::Gray).unwrap());
    let file = |bits: &str, strays: usize| {
        [&grey[..scan_start(&grey)], &stuffed(bits), &vec![0x11_u8; strays], &[0xff, 0xd9]].concat()
    };
    // DC 00 is no difference; AC 1010 is the end of the block, 11111111001 is 16 zeros: four of them lead out of the block.
    let whole = "001010";
    let broken = ["00", "11111111001", "11111111001", "11111111001", "11111111001", "1010"].concat();
    for (bits, strays) in [(whole, 10), (whole, 20), (broken.as_str(), 10)] {
        let warning = warning_of(&file(bits, strays)).unwrap();
        assert!(warning.contains("before marker 0xd9") && !is_of_left_over_bytes(&warning), "{warning}");
    }
    assert!(decode(&file(whole, 10), 8).is_ok());
    assert!(decode(&file(whole, 20), 8).is_ok());
    assert_eq!(decode_failure(&file(whole, 40)), FailureReason::CorruptImage);
    assert_eq!(decode_failure(&file(&broken, 10)), FailureReason::CorruptImage);
}
