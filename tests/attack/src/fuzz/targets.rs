//! The targets: the code that reads input from outside first, with valid inputs and the properties that hold for any.

use std::path::Path;

use photofinish_store::blobs::local::{LocalFiles, LocalSettings};
use photofinish_store::model::ids::{AlbumId, OrganizationId, PhotoId};
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::traits::{Blobs, UploadConditions};
use photofinish_tests::harness::test_photo::{Exif, TestPhoto};

use super::mutate::Structure;
use super::{Check, FuzzTarget};

/// The names of all targets.
pub const TARGET_NAMES: &[&str] = &[
    "jpeg",
    "png",
    "webp",
    #[cfg(feature = "heic")]
    "heic",
    "exif",
    "json",
    "cursor",
    "signature",
];

const JSON_TOKENS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\"",
    "\\",
    "\\u0000",
    "\\ud800",
    "null",
    "true",
    "-1",
    "1e999",
    "0.1",
    "18446744073709551616",
    "\"albumId\":",
    "\"config\":{\"face\":",
    "\"grid\":",
    "\"tags\":[",
    "\"photoIds\":[",
    "\"entries\":[{\"bib\":",
    "\"cursor\":",
    "\"limit\":",
    "\"confirm\":",
    "\u{feff}",
    "\u{0}",
    "\"01890000-0000-7000-8000-000000000001\"",
];
const CURSOR_TOKENS: &[&str] =
    &["0", "f", "A", "7ff0000000000000", "7ff8000000000001", "-", " ", "\u{e9}", "\0"];
const QUERY_TOKENS: &[&str] = &[
    "&",
    "=",
    "%",
    "%2F",
    "+",
    ";",
    "&expires=",
    "&max=",
    "&type=",
    "&signature=",
    "&x=1",
    "%00",
    "%26",
    "0",
    "-",
    "\0",
];

/// Makes the target of this name.
pub(super) fn make_target(name: &str, scratch: &Path) -> anyhow::Result<FuzzTarget> {
    let known = TARGET_NAMES.iter().find(|known| **known == name);
    let name = *known.ok_or_else(|| anyhow::anyhow!("no target {name}: {TARGET_NAMES:?}"))?;
    let photo = || TestPhoto::new(96, 64).with_face(1, [8, 8, 40]);
    let read_photo = || Box::new(photofinish_pipeline::fuzzing::check_photo) as Check;
    let (structure, seeds, check): (_, _, Check) = match name {
        "jpeg" => {
            let scene = photo();
            let grey = TestPhoto::new(33, 17).to_grey_jpeg();
            let seeds = vec![scene.to_jpeg(), scene.to_progressive_jpeg(), scene.to_cmyk_jpeg(), grey];
            (Structure::Jpeg, seeds, read_photo())
        }
        "png" => {
            let seeds = vec![photo().to_png(), photo().to_png16(), photo().to_png_with_alpha()];
            (Structure::Png, seeds, read_photo())
        }
        "webp" => (Structure::Webp, vec![photo().to_webp(), animated_webp(&photo())], read_photo()),
        #[cfg(feature = "heic")]
        "heic" => (Structure::Heif, super::heic::make_seeds(&photo())?, read_photo()),
        "exif" => (Structure::Jpeg, exif_seeds(), Box::new(photofinish_pipeline::fuzzing::check_metadata)),
        "json" => (
            Structure::Text(JSON_TOKENS),
            photofinish_api::fuzzing::example_bodies(),
            Box::new(photofinish_api::fuzzing::check_body),
        ),
        "cursor" => (Structure::Text(CURSOR_TOKENS), cursor_seeds(), Box::new(check_cursor)),
        _ => make_signature_target(scratch)?,
    };
    Ok(FuzzTarget { name, structure, seeds, check })
}

/// Small files, so that most changes hit the metadata.
fn exif_seeds() -> Vec<Vec<u8>> {
    let photo = TestPhoto::new(16, 16);
    (1..=8).map(|orientation| photo.to_jpeg_with_exif(Exif::with_orientation(orientation))).collect()
}

/// The pictures of a still WebP as the frames of an animation.
fn animated_webp(photo: &TestPhoto) -> Vec<u8> {
    let still = photo.to_webp();
    let (width, height) = photo.pixels().dimensions();
    let side = |length: u32| [(length - 1) as u8, 0, 0];
    let chunk = |name: &[u8], content: &[u8]| {
        let mut chunk = [name, &(content.len() as u32).to_le_bytes(), content].concat();
        chunk.resize(chunk.len().next_multiple_of(2), 0);
        chunk
    };
    let canvas = [&[2, 0, 0, 0][..], &side(width), &side(height)].concat();
    let frame = [&[0; 6][..], &side(width), &side(height), &[100, 0, 0, 0], &still[12..]].concat();
    let chunks =
        [chunk(b"VP8X", &canvas), chunk(b"ANIM", &[0; 6]), chunk(b"ANMF", &frame), chunk(b"ANMF", &frame)];
    let content = [b"WEBP".to_vec(), chunks.concat()].concat();
    chunk(b"RIFF", &content)
}

fn cursor_seeds() -> Vec<Vec<u8>> {
    let id = "0189000000007000800000000000000f";
    vec![id.as_bytes().to_vec(), format!("4056800000000000{id}").into_bytes()]
}

fn check_cursor(input: &[u8]) -> bool {
    photofinish_api::fuzzing::check_cursor(&String::from_utf8_lossy(input))
}

/// Queries of signed URLs of one object: exactly the signed ones are accepted.
fn make_signature_target(scratch: &Path) -> anyhow::Result<(Structure, Vec<Vec<u8>>, Check)> {
    const JPEG: &str = "image/jpeg";
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let settings = LocalSettings {
        root: scratch.join("objects"),
        has_photos: false,
        public_url: "http://127.0.0.1:8080".parse()?,
        signing_secret: [7; 32],
    };
    let files = runtime.block_on(LocalFiles::open_folder(settings))?;
    let key = ObjectKey::photo(
        OrganizationId::generate(),
        AlbumId::generate(),
        PhotoId::generate(),
        ObjectRole::Original,
    );
    let ttl = std::time::Duration::from_secs(1 << 30);
    let conditions = UploadConditions { content_type: JPEG, max_bytes: 1_000_000, ttl };
    let upload = runtime.block_on(files.upload_url(&key, conditions))?;
    let download = runtime.block_on(files.download_url(&key, ttl))?;
    let query = |url: &url::Url| url.query().unwrap_or_default().to_owned();
    let (upload, download) = (query(&upload), query(&download));
    let seeds = vec![upload.clone().into_bytes(), download.clone().into_bytes()];
    let check = move |input: &[u8]| {
        let text = String::from_utf8_lossy(input);
        let is_upload = files.verify_upload(key.as_str(), &text, Some(JPEG)).is_ok();
        assert_eq!(is_upload, text == upload, "an upload with the query {text}");
        let is_download = files.verify_download(key.as_str(), &text).is_ok();
        assert_eq!(is_download, text == download, "a download with the query {text}");
        is_upload || is_download
    };
    Ok((Structure::Text(QUERY_TOKENS), seeds, Box::new(check)))
}
