//! Files with restart markers, which the safe binding of libjpeg-turbo cannot write.

#![expect(unsafe_code, reason = "only the C interface of libjpeg-turbo has restart markers")]

use photofinish_jpeg::{Damage, Decoder, Header, Scale};
use turbojpeg::{Subsamp, raw};

use super::files::{SAMPLINGS, draw};
use super::pixels::assert_same_pixels;

/// Encodes a drawing with a restart marker after so many MCUs.
pub fn encode((width, height): (usize, usize), sampling: Subsamp, interval: i32) -> Vec<u8> {
    let pixels = draw(width, height);
    let (width, height, subsampling) = (width as i32, height as i32, sampling as i32);
    // SAFETY: the handle and its buffer are made and freed here, and the pixels are as many as the sides say.
    unsafe {
        let handle = raw::tj3Init(raw::TJINIT_TJINIT_COMPRESS as i32);
        assert!(!handle.is_null());
        for (parameter, value) in [
            (raw::TJPARAM_TJPARAM_QUALITY, 90),
            (raw::TJPARAM_TJPARAM_SUBSAMP, subsampling),
            (raw::TJPARAM_TJPARAM_RESTARTBLOCKS, interval),
        ] {
            assert_eq!(raw::tj3Set(handle, parameter as i32, value), 0);
        }
        let (mut buffer, mut bytes) = (std::ptr::null_mut(), 0);
        let format = raw::TJPF_TJPF_RGB;
        let result =
            raw::tj3Compress8(handle, pixels.as_ptr(), width, 0, height, format, &mut buffer, &mut bytes);
        assert_eq!(result, 0);
        let file = std::slice::from_raw_parts(buffer, bytes as usize).to_vec();
        raw::tj3Free(buffer.cast());
        raw::tj3Destroy(handle);
        file
    }
}

fn count_restarts(file: &[u8]) -> usize {
    file.windows(2).filter(|pair| pair[0] == 0xff && (0xd0..=0xd7).contains(&pair[1])).count()
}

#[test]
fn files_with_restart_markers_have_the_same_pixels() {
    let mut decoders = [Decoder::new(), Decoder::portable()];
    for size in [(8, 8), (50, 40), (200, 133), (333, 64)] {
        for sampling in SAMPLINGS {
            for interval in [1, 2, 3, 4, 5, 7, 8, 1000] {
                let file = encode(size, sampling, interval);
                let name = format!("{size:?} {sampling:?} every {interval}");
                assert_same_pixels(&file, &mut decoders, &name);
            }
        }
    }
    assert_eq!(count_restarts(&encode((50, 40), Subsamp::Sub2x2, 2)), 5);
}

fn damage_of(file: &[u8]) -> Option<Damage> {
    let header = Header::read(file).unwrap();
    let mut out = vec![0; header.rgb_bytes(Scale::Half)];
    Decoder::new().decode(&header, Scale::Half, &mut out).err()
}

#[test]
fn a_missing_wrong_or_additional_restart_marker_is_damage() {
    let file = encode((200, 133), Subsamp::Sub2x2, 3);
    assert_eq!(damage_of(&file), None);
    let marker =
        file.windows(2).rposition(|pair| pair[0] == 0xff && (0xd0..=0xd7).contains(&pair[1])).unwrap();
    let mut missing = file.clone();
    missing.drain(marker..marker + 2);
    assert!(damage_of(&missing).is_some());
    let mut wrong = file.clone();
    wrong[marker + 1] = 0xd0 + (wrong[marker + 1] + 1) % 8;
    assert_eq!(damage_of(&wrong), Some(Damage::MissingMarker));
    let mut twice = file.clone();
    twice.splice(marker..marker, [0xff, file[marker + 1]]);
    assert!(damage_of(&twice).is_some());
    let mut at_end = file.clone();
    at_end.splice(file.len() - 2..file.len() - 2, [0xff, 0xd0]);
    assert_eq!(damage_of(&at_end), Some(Damage::MissingMarker));
}
