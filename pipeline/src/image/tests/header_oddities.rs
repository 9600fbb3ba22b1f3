//! Headers that libjpeg-turbo warns of, with the pixels of the same files without what it warns of.

use super::*;

/// The file with what cameras and editors leave in headers. It begins with a segment that says that it is JFIF.
fn odd_copies(file: &[u8]) -> [(&'static str, Vec<u8>); 4] {
    assert_eq!(&file[2..11], b"\xff\xe0\0\x10JFIF\0");
    let with = |first: &[u8], rest: &[u8]| [&file[..2], first, rest, &file[20..]].concat();
    let mut revision = file.to_vec();
    revision[11] = 2;
    // Of three colours no transform is 2. In a file that says that it is JFIF nothing is read from it.
    let adobe = [&[0xff, 0xee, 0, 14][..], b"Adobe", &[0, 100, 0, 0, 0, 0, 2]].concat();
    [
        ("stray bytes", with(&file[2..20], &[0x11; 5])),
        ("stray bytes with a marker", with(&file[2..20], &[0x11, 0xff, 0, 0xd8, 0xff, 0xd0, 0x11])),
        ("an unknown revision", revision),
        ("an unknown transform", with(&adobe, &[])),
    ]
}

#[test]
fn an_odd_header_changes_no_pixels_and_hides_no_damage() {
    let scene = scene(640, 480);
    let files = [
        ("baseline", jpeg(&scene, |_| {})),
        ("progressive", jpeg(&scene, |compressor| compressor.set_progressive(true).unwrap())),
    ];
    let mut decoder = Decoder::new(LIMITS, BufferPool::default()).unwrap();
    for (name, usual) in files {
        let usual_plan = decoder.plan(&usual, |_| 320).unwrap();
        let expected = decoder.decode(&usual, &usual_plan).unwrap().frame().pixels().to_vec();
        for (oddity, file) in odd_copies(&usual) {
            let plan = decoder.plan(&file, |_| 320).unwrap();
            assert_eq!(plan.decoded_size, Size { width: 320, height: 240 }, "{name}, {oddity}, at half size");
            assert_eq!(plan.peak_bytes, usual_plan.peak_bytes + file.len(), "{name}, {oddity}: with a copy");
            let picture = decoder.decode(&file, &plan);
            let picture = picture.unwrap_or_else(|poison| panic!("{name}, {oddity}: {poison}"));
            assert!(picture.frame().pixels() == expected, "{name}, {oddity}: other pixels");
            // Some of the data is missing, and the file has its end marker.
            let broken = [&file[..file.len() / 2], &[0xff, 0xd9]].concat();
            for damaged in [&broken[..], &file[..file.len() - 2], &file[..file.len() / 4 * 3]] {
                let failure = decode_failure(damaged);
                assert_eq!(failure, FailureReason::CorruptImage, "{name}, {oddity}, {} bytes", damaged.len());
            }
        }
    }
}
