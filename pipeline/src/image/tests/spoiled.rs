//! Damaged files between sound ones, in the hands of one decoder.

use super::*;

/// Decodes with a decoder that has met other files before.
fn decode_with(decoder: &mut Decoder, file: &[u8]) -> Result<Vec<u8>, Poison> {
    let plan = decoder.plan(file, |_| u32::MAX)?;
    decoder.decode(file, &plan).map(|picture| picture.frame().pixels().to_vec())
}

#[test]
fn no_file_spoils_the_decoder_for_the_files_after_it() {
    let baseline = jpeg(&scene(320, 240), |_| {});
    let progressive = jpeg(&scene(320, 240), |c| c.set_progressive(true).unwrap());
    let sound = [&baseline, &progressive];
    let mut decoder = Decoder::new(LIMITS, BufferPool::default()).unwrap();
    let expected = sound.map(|file| decode_with(&mut decoder, file).unwrap());
    let mut hostile: Vec<Vec<u8>> =
        (0..=255).map(|marker| [&b"\xff\xd8\xff"[..], &[marker], b" and so on"].concat()).collect();
    for file in sound {
        // Cut off, and with a marker of each kind in place of its own, in the header and in the scan.
        hostile.extend((0..file.len()).step_by(97).map(|end| file[..end].to_vec()));
        for marker in 0..=255 {
            for at in [2, 160, file.len() / 2] {
                let mut damaged = file.clone();
                damaged[at..at + 2].copy_from_slice(&[0xff, marker]);
                hostile.push(damaged);
            }
        }
    }
    for bad in hostile {
        drop(decode_with(&mut decoder, &bad));
        for (file, expected) in sound.iter().zip(&expected) {
            let pixels = decode_with(&mut decoder, file).unwrap_or_else(|poison| {
                panic!(
                    "after {} bytes that begin with {:02x?}: {poison}",
                    bad.len(),
                    &bad[..bad.len().min(8)]
                )
            });
            assert!(pixels == *expected, "other pixels after {} bytes", bad.len());
        }
    }
}
