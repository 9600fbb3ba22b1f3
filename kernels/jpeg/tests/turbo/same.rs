//! Compares the pixels of a file with libjpeg-turbo's.

use photofinish_jpeg::{Decoder, Header, Scale};

use super::reference;

/// Checks a file at some scales with each of the decoders.
pub fn assert_same_pixels_at(scales: &[Scale], file: &[u8], decoders: &mut [Decoder], name: &str) {
    let header = Header::read(file).unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
    for &scale in scales {
        let theirs = reference::decode(file, &header, scale).unwrap();
        for decoder in &mut *decoders {
            let mut ours = vec![0; header.rgb_bytes(scale)];
            decoder.decode(&header, scale, &mut ours).unwrap_or_else(|damage| panic!("{name}: {damage}"));
            if ours != theirs {
                let first = ours.iter().zip(&theirs).position(|(a, b)| a != b);
                panic!("{name} at {scale:?}, {decoder:?}: byte {first:?} differs");
            }
        }
    }
}
