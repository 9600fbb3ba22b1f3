//! One photo: a backdrop and the runners in front of it, far ones first.

use image::RgbImage;

use super::backdrop;
use super::bib::{BibPrinter, Sheet};
use super::canvas::{Canvas, Color, place};
use super::noise::Rng;
use super::portrait::{Portrait, Pose};
use super::runner::{self, RunnerFigure};

/// Standard deviation of the sensor's grain, in steps of 8 bits: a good camera at ISO 400.
const GRAIN: f32 = 2.2;

/// Somebody in a photo.
pub struct Entrant<'a> {
    /// The head.
    pub portrait: &'a Portrait,
    /// The race number.
    pub bib: &'a str,
    /// Colour of the shirt.
    pub shirt: Color,
}

/// A photo to draw.
pub struct PhotoPlan<'a> {
    /// Pixels across.
    pub width: u32,
    /// Pixels down.
    pub height: u32,
    /// Who is in it, from left to right.
    pub entrants: &'a [Entrant<'a>],
    /// Decides everything else.
    pub seed: u64,
}

/// Draws photos.
pub struct PhotoRenderer {
    printer: BibPrinter,
}

impl PhotoRenderer {
    /// # Errors
    /// When the font for the numbers is not on this system.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self { printer: BibPrinter::new()? })
    }

    /// The upright picture.
    pub fn draw_photo(&self, plan: &PhotoPlan<'_>) -> RgbImage {
        let mut dice = Rng::new(plan.seed);
        let mut canvas = Canvas::new(plan.width, plan.height);
        backdrop::draw_backdrop(&mut canvas, dice.uniform(0.4, 0.5), plan.seed);
        let light = dice.uniform(0.86, 1.1);
        let light = [light * dice.uniform(0.97, 1.05), light, light * dice.uniform(0.94, 1.04)];
        for (index, entrant) in plan.entrants.iter().enumerate() {
            let face_width = plan.height.min(plan.width) as f32 * dice.uniform(0.062, 0.085);
            let lane = (index as f32 + 1.0) / (plan.entrants.len() as f32 + 1.0);
            let pose = Pose {
                chin: place(
                    canvas.width() * (lane + dice.uniform(-0.05, 0.05)),
                    canvas.height() * dice.uniform(0.29, 0.36),
                ),
                face_width,
                rotation: dice.uniform(-0.12, 0.12),
                is_mirrored: dice.uniform(0.0, 1.0) < 0.3,
                light,
            };
            let sheet = self.print_sheet(entrant.bib);
            let figure =
                RunnerFigure { portrait: entrant.portrait, sheet: &sheet, shirt: entrant.shirt, pose };
            runner::draw_runner(&mut canvas, &figure, plan.seed.wrapping_add(index as u64));
        }
        canvas.to_image(plan.seed, GRAIN)
    }

    /// The colour of a header tells the wave, here by the first digit.
    fn print_sheet(&self, bib: &str) -> Sheet {
        let waves = [[32.0, 86.0, 168.0], [190.0, 36.0, 44.0], [30.0, 126.0, 76.0], [220.0, 128.0, 22.0]];
        let wave = bib.bytes().next().unwrap_or(0) as usize % waves.len();
        self.printer.print(bib, waves[wave])
    }
}

/// A picture as a phone would take it of that person: head and shoulders, other light, a little grain.
pub fn draw_selfie(portrait: &Portrait, seed: u64) -> RgbImage {
    let mut dice = Rng::new(seed);
    let (width, height) = (960, 1200);
    let mut canvas = Canvas::new(width, height);
    let face_width = canvas.width() * dice.uniform(0.3, 0.36);
    let chin = place(canvas.width() * dice.uniform(0.45, 0.55), canvas.height() * dice.uniform(0.6, 0.66));
    let warmth = dice.uniform(0.95, 1.06);
    let light = [1.08 * warmth, 1.06, 1.08 / warmth];
    portrait.draw_selfie(
        &mut canvas,
        Pose { chin, face_width, rotation: dice.uniform(0.04, 0.1), is_mirrored: true, light },
    );
    canvas.to_image(seed, 2.0 * GRAIN)
}
