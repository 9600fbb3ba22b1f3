//! Damaged files are told from whole ones.

use photofinish_jpeg::{Damage, Decoder, Header, Scale};
use turbojpeg::{PixelFormat, Subsamp};

use super::files::{SAMPLINGS, encode};
use super::pixels::assert_same_pixels;
use super::{mutation, reference, restart};

fn decode(file: &[u8], scale: Scale) -> Result<(), Damage> {
    let header = Header::read(file).unwrap();
    let mut out = vec![0; header.rgb_bytes(scale)];
    let results =
        [Decoder::new(), Decoder::portable()].map(|mut decoder| decoder.decode(&header, scale, &mut out));
    assert_eq!(results[0], results[1]);
    results[0]
}

#[test]
fn a_file_cut_short_anywhere_is_damaged() {
    for sampling in SAMPLINGS {
        let file = encode((200, 133), 92, sampling, true);
        let start = file.windows(2).position(|pair| pair == [0xff, 0xda]).unwrap() + 14;
        for end in (start..file.len()).step_by(53).chain(file.len() - 12..file.len()) {
            assert!(decode(&file[..end], Scale::Half).is_err(), "{sampling:?}: {end} of {}", file.len());
        }
        assert_eq!(decode(&file, Scale::Half), Ok(()));
    }
}

#[test]
fn bytes_before_the_end_marker_are_damage_and_bytes_behind_it_are_not() {
    let file = encode((200, 133), 92, Subsamp::Sub2x2, false);
    let end = file.len() - 2;
    let mut stuffed = file.clone();
    stuffed.splice(end..end, [0x11; 7]);
    assert_eq!(decode(&stuffed, Scale::Quarter), Err(Damage::LeftOver));
    let mut padded = file.clone();
    padded.extend([0; 100]);
    assert_eq!(decode(&padded, Scale::Quarter), Ok(()));
    let mut filled = file;
    filled.splice(end..end, [0xff; 3]);
    assert_eq!(decode(&filled, Scale::Quarter), Ok(()));
}

/// A grey file of one block of 8 by 8, with the standard's tables and this data.
fn one_block(data: &[u8]) -> Vec<u8> {
    let file = encode((8, 8), 90, Subsamp::Gray, false);
    let scan = file.windows(2).position(|pair| pair == [0xff, 0xda]).unwrap() + 10;
    [&file[..scan], data, &[0xff, 0xd9]].concat()
}

#[test]
fn the_kind_of_damage_is_told() {
    // DC 00 is no difference; AC 1010 is the end of the block; the rest of the byte is filled with ones.
    assert_eq!(decode(&one_block(&[0b0010_1011]), Scale::Full), Ok(()));
    // 16 ones are no code.
    assert_eq!(decode(&one_block(&[0b0011_1111, 0xff, 0, 0xff, 0]), Scale::Full), Err(Damage::InvalidCode));
    // 11111111001 is 16 zeros: four of them lead out of the block.
    let bits = ["00", "11111111001", "11111111001", "11111111001", "11111111001", "1010"].concat();
    assert_eq!(decode(&one_block(&stuffed(&bits)), Scale::Full), Err(Damage::LongRun));
    // 111111110 is a difference of 11 bits.
    let bits = ["111111110", "11111111111", "1010"].concat();
    assert_eq!(decode(&one_block(&stuffed(&bits)), Scale::Full), Err(Damage::DcOutOfRange));
    assert_eq!(decode(&one_block(&[0b0010_1011, 0x55]), Scale::Full), Err(Damage::LeftOver));
    assert_eq!(decode(&one_block(&[0b0000_0001]), Scale::Full), Err(Damage::EndsEarly));
}

/// The bytes of some bits, filled with ones, with stuffed zeros.
fn stuffed(bits: &str) -> Vec<u8> {
    let digits: Vec<u8> = bits.bytes().map(|digit| digit - b'0').collect();
    let bytes = digits.chunks(8).map(|byte| (0..8).fold(0, |all, i| all << 1 | byte.get(i).unwrap_or(&1)));
    bytes.flat_map(|byte| if byte == 0xff { vec![0xff, 0] } else { vec![byte] }).collect()
}

#[test]
fn nothing_that_libjpeg_turbo_warns_of_is_whole() {
    let mut files: Vec<Vec<u8>> =
        SAMPLINGS.iter().map(|sampling| encode((97, 61), 85, *sampling, true)).collect();
    files.push(encode((97, 61), 60, Subsamp::Sub2x2, false));
    files.extend([1, 3].map(|interval| restart::encode((97, 61), Subsamp::Sub2x2, interval)));
    let tally = mutation::run(&files, 0..6_000);
    assert!(tally.laxer.is_empty(), "{:#?}", tally.laxer);
    assert!(tally.differing.is_empty(), "{:#?}", tally.differing);
    assert!(tally.stricter <= tally.damaged);
    // Most of the damage reaches the decoder, and some leaves a whole file.
    assert!(tally.damaged > 2_000 && tally.whole > 200 && tally.refused > 200, "{tally:?}");
}

#[test]
fn a_file_of_a_phone_with_other_bytes_in_its_scan_header_is_judged_as_strictly() {
    let usual = encode((97, 61), 85, Subsamp::Sub2x2, true);
    let file = reference::with_scan_parameters(&usual, [0, 0, 0]);
    assert_eq!(decode(&file, Scale::Half), Ok(()));
    for end in [file.len() * 3 / 4, file.len() - 2] {
        assert!(decode(&file[..end], Scale::Half).is_err(), "{end} of {}", file.len());
    }
    let tally = mutation::run(&[file], 0..1_000);
    assert!(tally.laxer.is_empty(), "{:#?}", tally.laxer);
    assert!(tally.damaged > 200 && tally.whole > 0, "{tally:?}");
}

/// A file with a colour profile in one segment, numbered so.
fn with_profile(file: &[u8], number: u8, count: u8) -> Vec<u8> {
    let segment = [&[0xff, 0xe2, 0, 36][..], b"ICC_PROFILE\0", &[number, count], &[7; 20]].concat();
    let mut copy = file.to_vec();
    copy.splice(2..2, segment);
    copy
}

/// libjpeg-turbo warns of the numbers and the binding fails; the profile does not change the pixels.
#[test]
fn a_file_whose_profile_is_numbered_wrongly_has_the_same_pixels_and_is_judged_as_strictly() {
    let usual = encode((97, 61), 85, Subsamp::Sub2x2, true);
    let file = with_profile(&usual, 2, 1);
    let warning = turbojpeg::decompress(&file, PixelFormat::RGB).unwrap_err().to_string();
    assert!(warning.contains("bad ICC marker"), "{warning}");
    assert_same_pixels(&file, &mut [Decoder::new(), Decoder::portable()], "numbered 2 of 1");
    for end in [file.len() * 3 / 4, file.len() - 2] {
        assert!(decode(&file[..end], Scale::Half).is_err(), "{end} of {}", file.len());
    }
    let tally = mutation::run(&[file, with_profile(&usual, 1, 1)], 0..2_000);
    assert!(tally.laxer.is_empty(), "{:#?}", tally.laxer);
    assert!(tally.damaged > 200 && tally.whole > 0, "{tally:?}");
}
