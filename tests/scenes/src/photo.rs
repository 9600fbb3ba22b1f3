//! Draws one photo: a backdrop and the runners in front of it.

use image::RgbImage;

use crate::backdrop;
use crate::bib::{BibPrinter, Sheet};
use crate::canvas::{Canvas, Color, Point};
use crate::head::Head;
use crate::noise::Rng;
use crate::portrait::{Portrait, Pose};
use crate::runner::{self, RunnerFigure};

/// Standard deviation of the sensor's grain, in 8-bit steps: that of a good camera at ISO 400.
const GRAIN: f32 = 2.2;

/// A runner to draw.
pub struct Entrant<'a> {
    /// The head.
    pub head: Head<'a>,
    /// The race number; none is worn where there is none.
    pub bib: Option<&'a str>,
    /// Colour of the shirt.
    pub shirt: Color,
}

/// A photo to draw.
pub struct PhotoPlan<'a> {
    /// Width, pixels.
    pub width: u32,
    /// Height, pixels.
    pub height: u32,
    /// The runners in it, from left to right.
    pub entrants: &'a [Entrant<'a>],
    /// Determines everything else.
    pub seed: u64,
}

/// Draws photos.
pub struct PhotoRenderer {
    printer: BibPrinter,
}

impl PhotoRenderer {
    /// Creates a renderer.
    ///
    /// # Errors
    /// When the font of the race numbers is not installed.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self { printer: BibPrinter::new()? })
    }

    /// Draws the photo, upright.
    pub fn draw_photo(&self, plan: &PhotoPlan<'_>) -> RgbImage {
        let mut rng = Rng::new(plan.seed);
        let mut canvas = Canvas::new(plan.width, plan.height);
        backdrop::draw_backdrop(&mut canvas, rng.uniform(0.4, 0.5), plan.seed);
        let light = rng.uniform(0.86, 1.1);
        let light = [light * rng.uniform(0.97, 1.05), light, light * rng.uniform(0.94, 1.04)];
        for (index, entrant) in plan.entrants.iter().enumerate() {
            let face_width = plan.height.min(plan.width) as f32 * rng.uniform(0.062, 0.085);
            let lane = (index as f32 + 1.0) / (plan.entrants.len() as f32 + 1.0);
            let pose = Pose {
                chin: Point::new(
                    canvas.width() * (lane + rng.uniform(-0.05, 0.05)),
                    canvas.height() * rng.uniform(0.29, 0.36),
                ),
                face_width,
                rotation: rng.uniform(-0.12, 0.12),
                is_mirrored: rng.uniform(0.0, 1.0) < 0.3,
                light,
            };
            let sheet = entrant.bib.map(|bib| self.print_sheet(bib));
            let figure =
                RunnerFigure { head: entrant.head, sheet: sheet.as_ref(), shirt: entrant.shirt, pose };
            runner::draw_runner(&mut canvas, &figure, plan.seed.wrapping_add(index as u64));
        }
        canvas.to_image(plan.seed, GRAIN)
    }

    /// Prints a bib whose header has the colour of the starting wave, chosen by the first digit.
    fn print_sheet(&self, bib: &str) -> Sheet {
        let waves = [[32.0, 86.0, 168.0], [190.0, 36.0, 44.0], [30.0, 126.0, 76.0], [220.0, 128.0, 22.0]];
        let wave = bib.bytes().next().unwrap_or(0) as usize % waves.len();
        self.printer.print(bib, waves[wave])
    }
}

/// Draws a selfie of that person, as taken by a phone: head and shoulders, other light than in photos, more grain.
pub fn draw_selfie(portrait: &Portrait, seed: u64) -> RgbImage {
    let mut rng = Rng::new(seed);
    let (width, height) = (960, 1200);
    let mut canvas = Canvas::new(width, height);
    let face_width = canvas.width() * rng.uniform(0.3, 0.36);
    let chin = Point::new(canvas.width() * rng.uniform(0.45, 0.55), canvas.height() * rng.uniform(0.6, 0.66));
    let warmth = rng.uniform(0.95, 1.06);
    let light = [1.08 * warmth, 1.06, 1.08 / warmth];
    portrait.draw_selfie(
        &mut canvas,
        Pose { chin, face_width, rotation: rng.uniform(0.04, 0.1), is_mirrored: true, light },
    );
    canvas.to_image(seed, 2.0 * GRAIN)
}
