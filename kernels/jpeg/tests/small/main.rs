//! Small committed files, decoded without libjpeg-turbo, so that an interpreter that calls no C code can check every read
//! and write: `cargo xtask fuzz --sanitizers` runs this under Miri, with vectors and without.

#[cfg(test)]
mod files;
#[cfg(test)]
#[path = "../turbo/mutate.rs"]
mod mutate;

#[cfg(test)]
mod tests {
    use photofinish_jpeg::{Damage, Decoder, Header, Sampling, Scale};

    use super::files;
    use super::mutate::{Random, mutate};

    /// One of each sampling, and one with restart markers.
    const FILES: [(&[u8], Sampling); 5] = [
        (files::ALL_COLOURS, Sampling::Full),
        (files::HALF_THE_COLOURS, Sampling::HalfWidth),
        (files::QUARTER_OF_THE_COLOURS, Sampling::HalfBoth),
        (files::GREY, Sampling::Grey),
        (files::RESTARTS, Sampling::HalfBoth),
    ];

    /// An interpreter takes a second for a file.
    const DAMAGED_FILES: u64 = if cfg!(miri) { 16 } else { 20_000 };

    /// A damaged header may claim gigabytes.
    const MAX_PIXELS: usize = if cfg!(miri) { 4_000 } else { 1_000_000 };

    /// Decodes with vectors and without. They must agree.
    fn decode(file: &[u8], scale: Scale, decoders: &mut [Decoder; 2]) -> Option<Result<Vec<u8>, Damage>> {
        let header = Header::read(file).ok()?;
        if header.size().width * header.size().height > MAX_PIXELS {
            return None;
        }
        let [vectors, portable] = decoders.each_mut().map(|decoder| {
            let mut pixels = vec![0; header.rgb_bytes(scale)];
            decoder.decode(&header, scale, &mut pixels).map(|()| pixels)
        });
        assert_eq!(vectors, portable, "{scale:?}");
        Some(vectors)
    }

    #[test]
    fn small_files_are_decoded_the_same_with_vectors_and_without() {
        let mut decoders = [Decoder::new(), Decoder::portable()];
        for (file, sampling) in FILES {
            assert_eq!(Header::read(file).expect("a JPEG file").sampling(), sampling);
            for &scale in Scale::ALL {
                let pixels = decode(file, scale, &mut decoders).expect("a JPEG file").expect("no damage");
                let brightest = pixels.iter().max().zip(pixels.iter().min());
                assert!(
                    brightest.is_some_and(|(most, least)| most - least > 60),
                    "a flat picture at {scale:?}"
                );
            }
        }
    }

    #[test]
    fn damaged_files_end_the_same_with_vectors_and_without() {
        let mut decoders = [Decoder::new(), Decoder::portable()];
        let mut verdicts = [0; 3];
        for seed in 0..DAMAGED_FILES {
            let mut random = Random::new(seed);
            let file = mutate(FILES[random.below(FILES.len())].0, &mut random);
            let scale = Scale::ALL[random.below(Scale::ALL.len())];
            verdicts[match decode(&file, scale, &mut decoders) {
                None => 0,
                Some(Ok(_)) => 1,
                Some(Err(_)) => 2,
            }] += 1;
        }
        assert!(
            cfg!(miri) || verdicts.iter().all(|count| *count > 0),
            "refused, whole and damaged: {verdicts:?}"
        );
    }
}
