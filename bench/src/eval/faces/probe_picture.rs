//! Pictures to search with: cropped from labelled photos, each with a seeded jitter of place, size, brightness and JPEG
//! quality, as no two selfies of a person are the same.

use std::path::Path;

use image::RgbImage;

use super::people::Probe;
use crate::photos::random::SplitMix;
use crate::photos::{change_brightness, encode_jpeg, enlarge};

/// Side of a runner's probe as a multiple of the face box: the detector needs the head around the face.
const MARGIN: [f64; 2] = [1.8, 2.2];

/// How far the centre of the crop may be from that of the face box, as part of its side.
const SHIFT: f64 = 0.06;

/// Least side of the face in a runner's probe, in pixels; smaller faces are enlarged. Faces in the race photos have 20 to
/// 110, those in selfies more.
pub const FACE_SIDE: f64 = 112.0;

/// The largest part of a portrait that is cut off at each side.
const CUT: f64 = 0.04;

/// Factor of the brightness.
const BRIGHTNESS: [f64; 2] = [0.85, 1.15];

/// JPEG quality.
const QUALITY: [f64; 2] = [80.0, 96.0];

/// Returns the probe as JPEG, with the jitter of a seed.
///
/// # Errors
/// When the photo cannot be read, or the face is outside of it.
pub fn make_picture(folder: &Path, probe: &Probe, seed: u64) -> anyhow::Result<Vec<u8>> {
    let photo = enlarge::load_picture(&folder.join(&probe.file))?;
    let name = probe.name.bytes().fold(seed, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    let mut random = SplitMix(name);
    let mut picture = match probe.face_box {
        Some(face_box) => crop_face(&photo, face_box, &mut random)?,
        None => cut_edges(&photo, &mut random),
    };
    change_brightness(&mut picture, random.uniform(BRIGHTNESS[0], BRIGHTNESS[1]));
    encode_jpeg(&picture, random.uniform(QUALITY[0], QUALITY[1]) as i32)
}

/// Returns the face with a margin, enlarged to [`FACE_SIDE`].
fn crop_face(photo: &RgbImage, face_box: [f64; 4], random: &mut SplitMix) -> anyhow::Result<RgbImage> {
    let [left, top, right, bottom] = face_box;
    let side = (right - left).max(bottom - top);
    let half = side * random.uniform(MARGIN[0], MARGIN[1]) / 2.0;
    let x = (left + right) / 2.0 + side * random.uniform(-SHIFT, SHIFT);
    let y = (top + bottom) / 2.0 + side * random.uniform(-SHIFT, SHIFT);
    let clamp = |position: f64, length: u32| position.round().clamp(0.0, f64::from(length)) as u32;
    let (x0, x1) = (clamp(x - half, photo.width()), clamp(x + half, photo.width()));
    let (y0, y1) = (clamp(y - half, photo.height()), clamp(y + half, photo.height()));
    anyhow::ensure!(x1 > x0 && y1 > y0, "the face box is outside the photo");
    let crop = image::imageops::crop_imm(photo, x0, y0, x1 - x0, y1 - y0).to_image();
    let scale = (FACE_SIDE / side).max(1.0);
    let larger = |length: u32| (f64::from(length) * scale).round() as u32;
    enlarge::resample(&crop, larger(crop.width()), larger(crop.height()))
}

fn cut_edges(photo: &RgbImage, random: &mut SplitMix) -> RgbImage {
    let mut cut = |length: u32| {
        let near = (f64::from(length) * random.uniform(0.0, CUT)) as u32;
        let far = (f64::from(length) * random.uniform(0.0, CUT)) as u32;
        (near, (length - near - far).max(1))
    };
    let ((x, width), (y, height)) = (cut(photo.width()), cut(photo.height()));
    image::imageops::crop_imm(photo, x, y, width, height).to_image()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_depends_on_its_seed_and_shows_the_face() {
        let folder = tempfile::tempdir().unwrap();
        let photo = RgbImage::from_fn(200, 100, |x, y| image::Rgb([x as u8, y as u8, 90]));
        photo.save(folder.path().join("a.png")).unwrap();
        let probe = Probe { face_box: Some([50.0, 20.0, 90.0, 70.0]), ..Probe::of("7", "a.png") };
        let make = |seed| make_picture(folder.path(), &probe, seed).unwrap();
        assert_eq!(make(1), make(1));
        assert_ne!(make(1), make(2));
        let header = turbojpeg::read_header(&make(1)).unwrap();
        assert!((200..280).contains(&header.height), "{} pixels high", header.height);
        let outside = Probe { face_box: Some([500.0, 20.0, 540.0, 70.0]), ..probe };
        assert!(make_picture(folder.path(), &outside, 1).is_err());
    }
}
