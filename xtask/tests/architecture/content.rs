//! What must not be in the repository: data, unfinished code, `unsafe` outside the crates that need it.

use super::source;

/// No hand-written file is larger.
const LARGEST_FILE_BYTES: u64 = 1 << 20;

/// Images, weights, libraries and archives are downloaded or drawn, never committed, except in [`TRAINED`].
const FORBIDDEN_ENDINGS: [&str; 17] = [
    ".onnx",
    ".bin",
    ".pt",
    ".pth",
    ".tflite",
    ".safetensors",
    ".npy",
    ".jpg",
    ".jpeg",
    ".png",
    ".webp",
    ".gif",
    ".so",
    ".whl",
    ".zip",
    ".tgz",
    ".gz",
];

/// Where the weights are that this project trains itself, and calibrations of networks; `models/train` makes them.
const TRAINED: &str = "models/trained/";

/// Where pictures of pages are, made by the browser's test of an event whose runners are drawn.
const SCREENS: &str = "docs/screens/";
/// All of them together are no larger.
const LARGEST_SCREENS_BYTES: u64 = 3 << 20;

/// Folders of the crates that may be unsafe, and why.
const MAY_BE_UNSAFE: [(&str, &str); 5] = [
    ("allocators/", "declares a function of each allocator"),
    ("kernels/cuda/", "calls NVIDIA's driver and compiler, and launches kernels, which are unsafe by nature"),
    (
        "kernels/dot/",
        "vector instructions that multiply bytes, which the standard library has no safe form of",
    ),
    ("kernels/jpeg/", "vector instructions, and a reader of bits whose checks would cost what it gains"),
    ("models/libfacedetection/", "calls a C++ library"),
];

fn may_be_unsafe(name: &str) -> bool {
    MAY_BE_UNSAFE.iter().any(|(folder, reason)| name.starts_with(folder) && !reason.is_empty())
}

#[test]
fn nothing_large_and_no_data_is_committed() {
    for name in source::files() {
        let bytes = std::fs::metadata(source::root().join(&name)).unwrap().len();
        assert!(bytes <= LARGEST_FILE_BYTES, "{name} has {bytes} bytes");
        let lower = name.to_lowercase();
        assert!(
            name.starts_with(TRAINED)
                || name.starts_with(SCREENS) && name.ends_with(".webp")
                || !FORBIDDEN_ENDINGS.iter().any(|ending| lower.ends_with(ending)),
            "{name} is not a source file"
        );
    }
}

/// A camera's data has no place in a picture of a page, and would show that it is none.
#[test]
fn pictures_of_pages_are_small_and_carry_no_data_of_a_camera() {
    let mut total = 0;
    for name in source::files().into_iter().filter(|name| name.starts_with(SCREENS)) {
        let bytes = std::fs::read(source::root().join(&name)).unwrap();
        total += bytes.len() as u64;
        assert!(bytes.starts_with(b"RIFF") && bytes[8..].starts_with(b"WEBP"), "{name} is no WebP");
        assert!(!bytes.windows(4).any(|four| four == b"EXIF"), "{name} has EXIF data");
    }
    assert!(total <= LARGEST_SCREENS_BYTES, "{SCREENS} has {total} bytes");
}

/// Joins the two parts of a word, so that this file does not contain the words it searches for.
fn word(parts: [&str; 2]) -> String {
    parts.concat()
}

#[test]
fn nothing_is_left_for_later() {
    let words = [
        word(["to", "do!("]),
        word(["unimple", "mented!("]),
        word(["TO", "DO"]),
        word(["FIX", "ME"]),
        word(["#[ign", "ore"]),
        word(["dbg", "!("]),
    ];
    let mut found = Vec::new();
    for (name, text) in source::rust() {
        for (number, line) in text.lines().enumerate() {
            for word in words.iter().filter(|word| line.contains(word.as_str())) {
                found.push(format!("{name}:{}: {word}", number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn only_the_crates_that_say_why_may_be_unsafe() {
    let root = source::text("Cargo.toml");
    assert!(root.contains("unsafe_code = \"forbid\""), "the workspace no longer forbids unsafe code");
    for name in source::files().iter().filter(|name| name.ends_with("Cargo.toml")) {
        let is_exempt = may_be_unsafe(name);
        let inherits = source::text(name).contains("[lints]\nworkspace = true");
        assert!(inherits || is_exempt, "{name} does not inherit the workspace's lints");
    }
}

#[test]
fn every_unsafe_block_says_why_it_is_sound() {
    let keyword = word(["uns", "afe "]);
    for (name, text) in source::rust().into_iter().filter(|(name, _)| may_be_unsafe(name)) {
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let opens_block = line.contains(&format!("{keyword}{{"));
            let reasons = &lines[number.saturating_sub(6)..=number];
            let is_explained = reasons.iter().any(|line| line.contains("SAFETY:"));
            assert!(
                !opens_block || is_explained,
                "{name}:{}: no SAFETY comment before this block",
                number + 1
            );
        }
    }
}

#[test]
fn every_module_says_what_it_is() {
    for (name, text) in source::rust() {
        let first = text.lines().next().unwrap_or_default();
        assert!(first.starts_with("//!"), "{name} does not begin with a module comment (`//!`)");
    }
}
