//! Makes camera-size photos from the labelled race photos: enlarged, with sensor-like noise, JPEG quality 92. The result is
//! reproducible. The photos show real people and must stay outside the repository.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions};

use crate::paths::{InputPaths, root};
use crate::photos::labels::{self, LabelledPhoto};
use crate::photos::random::SplitMix;
use crate::photos::{self, encode_jpeg};

/// Standard deviation of the noise at mid grey, on a scale of 255. With it a 24 megapixel photo of quality 92 has about
/// 7 MB, like a camera's.
const NOISE_DEVIATION: f32 = 5.2;

/// JPEG quality of the photos.
const ENLARGED_QUALITY: i32 = 92;

/// The labels beside the photos.
pub const TRUTH_FILE: &str = "truth.csv";

/// Which photos to make.
#[derive(Clone, Debug, clap::Args)]
pub struct EnlargeOptions {
    /// Output folder; must be outside the checkout.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How many, spread evenly over the labelled photos.
    #[arg(long, default_value_t = 159)]
    pub count: usize,
    /// Megapixels of each.
    #[arg(long, default_value_t = 24.0)]
    pub megapixels: f64,
    #[command(flatten)]
    paths: InputPaths,
}

impl EnlargeOptions {
    /// Returns the defaults of the command line.
    pub fn with_defaults(paths: InputPaths) -> Self {
        Self { out: None, count: 159, megapixels: 24.0, paths }
    }

    /// Returns the output folder.
    pub fn output_dir(&self) -> PathBuf {
        self.out.clone().unwrap_or_else(|| std::env::temp_dir().join("photofinish-24mp"))
    }
}

/// Makes the photos and `truth.csv` beside them.
///
/// # Errors
/// When the labelled photos are missing or a file cannot be written.
pub fn run(options: &EnlargeOptions) -> anyhow::Result<()> {
    let folder = options.output_dir();
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let inside = folder.canonicalize()?.starts_with(root().canonicalize()?);
    anyhow::ensure!(!inside, "{} is in the checkout; photos of people must stay outside", folder.display());
    let photos = labels::load_photos(&options.paths.find_shared("photos/bibs.csv")?)?;
    let files = options.paths.find_shared("photos/files")?;
    remove_earlier(&folder)?;
    let mut truth = String::from("file,bibs,optional_bibs,source\n");
    let mut bytes = 0;
    for (number, photo) in pick_evenly(&photos, options.count).into_iter().enumerate() {
        let name = name_of(number + 1);
        let jpeg = enlarge(&files.join(&photo.file), options.megapixels, number as u64)?;
        bytes += jpeg.len();
        std::fs::write(folder.join(&name), jpeg)?;
        let join =
            |bibs: &std::collections::BTreeSet<String>| bibs.iter().cloned().collect::<Vec<_>>().join(" ");
        truth += &format!("{name},{},{},{}\n", join(&photo.bibs), join(&photo.optional), photo.file);
    }
    // Written last: where they exist, the folder is complete.
    std::fs::write(folder.join(TRUTH_FILE), truth)?;
    let count = options.count.min(photos.len());
    println!(
        "{count} photos of {} MP in {}, {:.1} MB each",
        options.megapixels,
        folder.display(),
        bytes as f64 / 1e6 / count.max(1) as f64
    );
    Ok(())
}

fn name_of(number: usize) -> String {
    format!("{number:04}.jpg")
}

/// Removes what an earlier run has made, which may have been more photos: first the labels, without which the rest does not
/// count.
fn remove_earlier(folder: &Path) -> anyhow::Result<()> {
    let truth_file = folder.join(TRUTH_FILE);
    if truth_file.exists() {
        std::fs::remove_file(&truth_file)?;
    }
    let is_photo = |name: &str| {
        let number = name.strip_suffix(".jpg").and_then(|number| number.parse().ok());
        number.is_some_and(|number| name_of(number) == name)
    };
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_photo) {
            std::fs::remove_file(entry.path())
                .with_context(|| format!("removing {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// Picks `count` of the photos at equal distances.
pub fn pick_evenly(photos: &[LabelledPhoto], count: usize) -> Vec<&LabelledPhoto> {
    let count = count.min(photos.len());
    (0..count).map(|i| &photos[i * photos.len() / count]).collect()
}

/// Returns one enlarged photo as JPEG, 4:2:0, quality 92; smaller where it has more megapixels already.
///
/// # Errors
/// When the photo is missing or not a picture.
pub fn enlarge(path: &Path, megapixels: f64, seed: u64) -> anyhow::Result<Vec<u8>> {
    let small = load_picture(path)?;
    let scale = (megapixels * 1e6 / (f64::from(small.width()) * f64::from(small.height()))).sqrt();
    let side = |length: u32| (f64::from(length) * scale).round().max(1.0) as u32;
    let mut large = resample(&small, side(small.width()), side(small.height()))?;
    add_noise(large.as_mut(), seed);
    encode_jpeg(&large, ENLARGED_QUALITY)
}

/// Decodes one of the labelled photos.
///
/// # Errors
/// When it is missing or not a picture.
pub fn load_picture(path: &Path) -> anyhow::Result<image::RgbImage> {
    let reader = image::ImageReader::open(path).with_context(|| format!("reading {}", path.display()))?;
    let picture =
        reader.with_guessed_format()?.decode().with_context(|| format!("decoding {}", path.display()))?;
    Ok(picture.into_rgb8())
}

/// Resamples with Lanczos.
///
/// # Errors
/// When a side is zero.
pub fn resample(picture: &image::RgbImage, width: u32, height: u32) -> anyhow::Result<image::RgbImage> {
    anyhow::ensure!(width > 0 && height > 0, "a picture of no pixels");
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Lanczos3));
    photos::resample(picture, width, height, &options)
}

/// Adds noise like a sensor's: the variance grows with brightness (shot noise) from a floor (read noise); most of it is in
/// brightness, a third in colour.
fn add_noise(pixels: &mut [u8], seed: u64) {
    let samples = normal_samples();
    let deviation: Vec<f32> =
        (0..=255u16).map(|level| NOISE_DEVIATION * (0.35 + 0.65 * f32::from(level) / 128.0).sqrt()).collect();
    let mut random = SplitMix(seed);
    for pixel in pixels.chunks_exact_mut(3) {
        let bits = random.next();
        let draw = |shift: u32| samples[(bits >> shift) as usize & (samples.len() - 1)];
        let brightness = draw(0);
        for (channel, value) in pixel.iter_mut().enumerate() {
            let noise = 0.94 * brightness + 0.33 * draw(16 * (channel as u32 + 1));
            *value =
                (f32::from(*value) + noise * deviation[usize::from(*value)]).round().clamp(0.0, 255.0) as u8;
        }
    }
}

/// Returns 65,536 samples of an approximately normal distribution (the sum of twelve uniform ones), so that drawing one is a
/// table look-up.
fn normal_samples() -> Vec<f32> {
    let mut random = SplitMix(0x5eed);
    let mut uniform = || (random.next() >> 11) as f64 / (1u64 << 53) as f64;
    (0..65_536).map(|_| ((0..12).map(|_| uniform()).sum::<f64>() - 6.0) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn photos_of_an_earlier_run_are_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        for file in ["0001.jpg", "0159.jpg", TRUTH_FILE, "holiday.jpg", "1.jpg", "0002.png"] {
            std::fs::write(folder.path().join(file), "").unwrap();
        }
        remove_earlier(folder.path()).unwrap();
        let left = std::fs::read_dir(folder.path()).unwrap();
        let mut left: Vec<String> =
            left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, ["0002.png", "1.jpg", "holiday.jpg"]);
        remove_earlier(folder.path()).unwrap();
    }

    #[test]
    fn photos_are_picked_evenly_from_the_whole_list() {
        let photo = |i: usize| LabelledPhoto { file: i.to_string(), bibs: [].into(), optional: [].into() };
        let photos: Vec<LabelledPhoto> = (0..10).map(photo).collect();
        let chosen: Vec<&str> = pick_evenly(&photos, 4).iter().map(|photo| photo.file.as_str()).collect();
        assert_eq!(chosen, ["0", "2", "5", "7"]);
        assert_eq!(pick_evenly(&photos, 99).len(), 10);
    }

    #[test]
    fn noise_is_reproducible_and_has_the_configured_strength() {
        let (mut one, mut two) = (vec![128u8; 30_000], vec![128u8; 30_000]);
        add_noise(&mut one, 7);
        add_noise(&mut two, 7);
        assert_eq!(one, two);
        let variance = one.iter().map(|&v| (f64::from(v) - 128.0).powi(2)).sum::<f64>() / one.len() as f64;
        assert!((variance.sqrt() - f64::from(NOISE_DEVIATION)).abs() < 0.4, "{}", variance.sqrt());
    }
}
