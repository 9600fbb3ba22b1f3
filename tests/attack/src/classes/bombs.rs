//! Bombs: files that claim or contain far more than their size, as photos and as selfies; and honest photos in an album
//! that makes each as slow as it can be.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::time::{Duration, Instant};

use image::{DynamicImage, GrayImage, ImageFormat};
use photofinish_tests::harness::test_photo::{TestPhoto, jpeg_of_four_gigapixels, png_of_four_gigapixels};
use photofinish_tests::harness::{Partner, UploadFile};
use serde_json::json;

use super::class::{Class, no_settings};
use super::stops::grid_config;
use crate::findings::Findings;
use crate::site::{Extent, PATIENCE, Site};
use crate::wire;

pub(super) const BOMBS: Class = Class {
    name: "bombs",
    description: "PNG, WebP and JPEG files that claim gigapixels, inflate beyond their header, or repeat their scans, as \
                  photos between sound ones and as selfies; one-colour selfies of 64 megapixels, 6 at once with one key; large photos in a \
                  16x16 grid album",
    settings: no_settings,
    stops_service: false,
    run,
};

/// How long selfies are sent, and how long the photos of the grid album are left to be read.
const GREED_TIME: Duration = Duration::from_secs(20);
/// Repetitions of a progressive JPEG's last scan, at most: each is decoded again over the whole picture.
const SCANS: usize = 300;
/// The size of a file of many scans: below the largest photo that is accepted.
const SCANNED_BYTES: usize = 40_000_000;
/// Selfies that one key sends at once.
const SELFIES_AT_ONCE: usize = 6;
/// Files between two sound photos.
const BOMBS_BETWEEN: usize = 4;

/// A file, and what may become of it as a photo.
struct Bomb {
    name: &'static str,
    content_type: &'static str,
    bytes: Vec<u8>,
    outcome: Outcome,
}

/// What may become of a file as a photo.
#[derive(Clone, Copy)]
enum Outcome {
    /// It is a picture within the limits, so it is ready.
    Ready,
    /// It fails, with one of these reasons.
    Fails(&'static [&'static str]),
    /// A reader may ignore what is wrong with it: it is ready, or fails with one of these reasons.
    Either(&'static [&'static str]),
}

impl Outcome {
    /// Whether a photo may end so.
    fn permits(self, state: &str, failure: &str) -> bool {
        match self {
            Self::Ready => state == "ready",
            Self::Fails(reasons) => state == "failed" && reasons.contains(&failure),
            Self::Either(reasons) => state == "ready" || state == "failed" && reasons.contains(&failure),
        }
    }
}

fn run(site: &Site, findings: &Findings) -> anyhow::Result<()> {
    let partner = site.tenant("Bomb Timing");
    let album = partner.create_album("Bombs");
    let bombs = make_bombs(site.extent)?;
    let (mut photos, mut sound) = (Vec::new(), Vec::new());
    for (number, bombs) in bombs.chunks(BOMBS_BETWEEN).enumerate() {
        sound.push(partner.upload_photo(&album, &format!("sound-{number}.jpg"), site.material.photo(0)));
        for bomb in bombs {
            let file = UploadFile { name: bomb.name, content_type: bomb.content_type, bytes: &bomb.bytes };
            photos.push(partner.upload_file(&album, file));
        }
    }
    sound.push(partner.upload_photo(&album, "sound.jpg", site.material.photo(0)));
    findings.tried(photos.len());
    for bomb in &bombs {
        try_selfie(site, findings, &partner, &album, bomb);
    }
    partner.wait_until_idle(&album);
    for (bomb, photo) in bombs.iter().zip(&photos) {
        let found = partner.get_photo(&album, photo);
        let (state, failure) = (&found["state"], found["failure"].as_str().unwrap_or_default());
        let is_expected = bomb.outcome.permits(state.as_str().unwrap_or_default(), failure);
        findings.check(is_expected, || format!("{}: {state} {failure}", bomb.name));
    }
    check_sound(site, findings, &partner, &album, &sound);
    send_large_selfies(site, findings, &partner, &album)?;
    send_grid_photos(site, findings, &partner);
    Ok(())
}

/// The bombs fail alone: the photos between them are ready and found.
fn check_sound(site: &Site, findings: &Findings, partner: &Partner, album: &str, sound: &[String]) {
    let hits = partner.search_by_bib(album, &site.material.bib);
    let hits: BTreeSet<&str> = hits.iter().filter_map(|hit| hit["id"].as_str()).collect();
    for photo in sound {
        let found = partner.get_photo(album, photo);
        let (state, failure) = (&found["state"], &found["failure"]);
        findings
            .check(state == "ready", || format!("a sound photo between the bombs is {state} with {failure}"));
        findings.check(hits.contains(photo.as_str()), || {
            format!("the bib of a sound photo between the bombs is not found: {found}")
        });
    }
}

fn make_bombs(extent: Extent) -> anyhow::Result<Vec<Bomb>> {
    const CORRUPT: Outcome = Outcome::Fails(&["CORRUPT_IMAGE"]);
    const TOO_MANY: Outcome = Outcome::Fails(&["TOO_MANY_PIXELS"]);
    const UNKNOWN: Outcome = Outcome::Fails(&["UNSUPPORTED_FORMAT"]);
    const NO_PICTURE: Outcome = Outcome::Fails(&["CORRUPT_IMAGE", "UNSUPPORTED_FORMAT"]);
    const MAY_BE_READ: Outcome = Outcome::Either(&["CORRUPT_IMAGE", "TOO_MANY_PIXELS", "UNSUPPORTED_FORMAT"]);
    let bomb = |name, content_type, bytes, outcome| Bomb { name, content_type, bytes, outcome };
    let side = extent.pick(2_000, 12_000);
    let flat = one_colour_png(side)?;
    let mut claimed = flat.clone();
    set_png_size(&mut claimed, 8, 8);
    let mut truncated = flat.clone();
    truncated.truncate(flat.len() / 2);
    let webp = TestPhoto::new(64, 64).to_webp();
    let mut riff = webp.clone();
    riff[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    #[cfg_attr(not(feature = "heic"), expect(unused_mut, reason = "those of HEIC follow"))]
    let mut bombs = vec![
        bomb("png-claims-4-gigapixels.png", "image/png", png_of_four_gigapixels(), TOO_MANY),
        bomb("jpeg-claims-4-gigapixels.jpg", "image/jpeg", jpeg_of_four_gigapixels(), TOO_MANY),
        bomb("webp-claims-16383.webp", "image/webp", large_webp(&webp), NO_PICTURE_OR_TOO_MANY),
        bomb("webp-riff-4-gigabytes.webp", "image/webp", riff, MAY_BE_READ),
        bomb("png-of-one-colour.png", "image/png", flat, Outcome::Ready),
        // What is beyond the header's size may be ignored.
        bomb("png-inflates-beyond-header.png", "image/png", claimed, MAY_BE_READ),
        bomb("png-of-one-colour-cut.png", "image/png", truncated, CORRUPT),
        bomb("jpeg-of-many-scans.jpg", "image/jpeg", repeat_last_scan(extent.pick(800, 4_000))?, MAY_BE_READ),
        bomb("jpeg-that-is-a-start.jpg", "image/jpeg", b"\xff\xd8\xff".to_vec(), NO_PICTURE),
        bomb(
            "jpeg-of-noise.jpg",
            "image/jpeg",
            noise(extent.pick(100_000, 40_000_000)),
            NO_PICTURE_OR_TOO_MANY,
        ),
        bomb("nothing.jpg", "image/jpeg", Vec::new(), UNKNOWN),
        bomb("page.jpg", "image/jpeg", b"<html><script>alert(1)</script>".to_vec(), UNKNOWN),
    ];
    #[cfg(feature = "heic")]
    for (name, bytes) in super::heic_bombs::make_files()? {
        bombs.push(bomb(name, "image/heic", bytes, NO_PICTURE_OR_TOO_MANY));
    }
    Ok(bombs)
}

const NO_PICTURE_OR_TOO_MANY: Outcome =
    Outcome::Fails(&["CORRUPT_IMAGE", "TOO_MANY_PIXELS", "UNSUPPORTED_FORMAT"]);

/// A grey picture of one colour, a thousandth of the size of its pixels.
fn one_colour_png(side: u32) -> anyhow::Result<Vec<u8>> {
    let picture = DynamicImage::ImageLuma8(GrayImage::from_pixel(side, side, image::Luma([127])));
    let mut file = Cursor::new(Vec::new());
    picture.write_to(&mut file, ImageFormat::Png)?;
    Ok(file.into_inner())
}

/// Writes another size into the header of a PNG, with the checksum that it then has.
fn set_png_size(png: &mut [u8], width: u32, height: u32) {
    png[16..20].copy_from_slice(&width.to_be_bytes());
    png[20..24].copy_from_slice(&height.to_be_bytes());
    let checksum = crc32fast::hash(&png[12..29]);
    png[29..33].copy_from_slice(&checksum.to_be_bytes());
}

/// A lossless WebP that claims the largest size of its format: 16,383 pixels a side, in 14 bits each.
fn large_webp(webp: &[u8]) -> Vec<u8> {
    let mut large = webp.to_vec();
    if let Some(at) = wire::find(webp, b"VP8L") {
        // Behind the chunk's length and the signature byte.
        large[at + 9..at + 12].fill(0xff);
        large[at + 12] |= 0x0f;
    }
    large
}

/// A progressive JPEG whose last scan occurs again and again.
fn repeat_last_scan(side: u32) -> anyhow::Result<Vec<u8>> {
    let jpeg = TestPhoto::new(side, side).to_progressive_jpeg();
    let starts = jpeg.windows(2).rposition(|marker| marker == [0xff, 0xda]);
    let start = starts.ok_or_else(|| anyhow::anyhow!("a JPEG without a scan"))?;
    let end = jpeg.len() - 2;
    let scan = &jpeg[start..end];
    let scans = scan.repeat(SCANS.min(SCANNED_BYTES / scan.len()));
    Ok([&jpeg[..end], &scans, &jpeg[end..]].concat())
}

/// The start of a JPEG, and then nothing that means anything.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 7_u32;
    let mut bytes = b"\xff\xd8\xff\xe0".to_vec();
    bytes.extend((0..length).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    }));
    bytes
}

fn try_selfie(site: &Site, findings: &Findings, partner: &Partner, album: &str, bomb: &Bomb) {
    let ticket = partner.call_ok("/photos/search/face/signed", &json!({ "albumId": album }));
    let url = ticket["uploadUrl"].as_str().unwrap_or_default();
    let sent = partner.put(url, bomb.content_type, &bomb.bytes);
    if sent.status == 413 {
        return findings.tried(1);
    }
    let case = format!("a selfie {}", bomb.name);
    findings.check(sent.status == 200, || format!("{case}: uploaded with {}", sent.text()));
    let input = json!({ "albumId": album, "imageId": ticket["imageId"] });
    let reaction = site.call("/photos/search/face/list", partner.key(), &input);
    findings.expect(&case, reaction, &[422, 429, 503]);
}

/// One-colour selfies at once with one key. The normal client beside them tells whether others are served.
fn send_large_selfies(
    site: &Site,
    findings: &Findings,
    partner: &Partner,
    album: &str,
) -> anyhow::Result<()> {
    let selfie = one_colour_png(site.extent.pick(1_000, 8_000))?;
    let limit = site.extent.pick(Duration::ZERO, GREED_TIME);
    std::thread::scope(|scope| {
        for number in 0..SELFIES_AT_ONCE {
            let (selfie, begun) = (&selfie, Instant::now());
            scope.spawn(move || {
                loop {
                    let uploaded = partner.client().upload_selfie(album, "image/png", selfie);
                    if let Ok(image) = uploaded {
                        let input = json!({ "albumId": album, "imageId": image }).to_string();
                        let request = wire::call("/photos/search/face/list", partner.key(), input.as_bytes());
                        let reaction = site.endpoint(1 + number as u8).send(&request, PATIENCE);
                        findings.expect("a large selfie of one colour", reaction, &[422, 429, 503]);
                    }
                    if begun.elapsed() >= limit {
                        break;
                    }
                }
            });
        }
    });
    Ok(())
}

/// Photos in an album of as many cells as the contract permits. They need not be ready; deleting them ends them.
fn send_grid_photos(site: &Site, findings: &Findings, partner: &Partner) {
    let album = partner.create_album_with(&json!({ "title": "Grid", "config": grid_config() }));
    for number in 0..3 {
        partner.upload_photo(&album, &format!("{number}.jpg"), site.material.largest_photo());
        findings.tried(1);
    }
    match site.extent {
        Extent::Quick => {
            let progress = partner.wait_until_idle(&album);
            findings.check(progress["ready"] == 3, || format!("photos of the grid album: {progress}"));
        }
        Extent::Long => {
            let begun = Instant::now();
            while begun.elapsed() < GREED_TIME && partner.album_progress(&album)["ready"] != 3 {
                std::thread::sleep(Duration::from_millis(200));
            }
            let progress = partner.album_progress(&album);
            findings.note(format!("{} of 3 grid photos ready in {GREED_TIME:?}", progress["ready"]));
        }
    }
    let deleted = partner.call("/albums/delete", &json!({ "albumId": album }));
    findings.check(deleted.status == 200, || format!("deleting the grid album: {}", deleted.text()));
}
