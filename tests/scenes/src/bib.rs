//! Race bibs: a white sheet with a coloured header and bold digits, drawn in a slight perspective.

use ab_glyph::{Font, FontVec, PxScale, ScaleFont, point};
use anyhow::Context;

use crate::canvas::{Bounds, Canvas, Color, Point, mix_colors};

/// Paths at which Linux distributions install DejaVu Sans Bold.
const FONT_PATHS: [&str; 3] = [
    "/usr/share/fonts/truetype/dejavu/DejaVuSans-Bold.ttf",
    "/usr/share/fonts/dejavu-sans-fonts/DejaVuSans-Bold.ttf",
    "/usr/share/fonts/TTF/DejaVuSans-Bold.ttf",
];

/// Height of a digit on the flat sheet, pixels.
const SHEET_DIGIT_HEIGHT: f32 = 160.0;

/// Renders flat bib sheets.
pub struct BibPrinter {
    font: FontVec,
}

/// A rendered sheet, before it is placed in a photo.
pub struct Sheet {
    width: usize,
    height: usize,
    pixels: Vec<Color>,
}

/// Where and how a sheet is drawn into a photo.
#[derive(Clone, Copy, Debug)]
pub struct BibPlacement {
    /// The middle of the sheet.
    pub centre: Point,
    /// Height of its digits, pixels of the photo.
    pub digit_height: f32,
    /// Clockwise rotation, radians.
    pub rotation: f32,
    /// Perspective: relative growth of the height from the middle to the right edge; negative when the left side is
    /// nearer.
    pub slant: f32,
}

impl BibPrinter {
    /// Creates a printer with the system's DejaVu Sans Bold.
    ///
    /// # Errors
    /// When the font is not installed or is damaged.
    pub fn new() -> anyhow::Result<Self> {
        let bytes = FONT_PATHS.iter().find_map(|path| std::fs::read(path).ok());
        let bytes =
            bytes.context("the font DejaVu Sans Bold is not on this system (package fonts-dejavu-core)")?;
        Ok(Self { font: FontVec::try_from_vec(bytes).context("the font DejaVu Sans Bold is damaged")? })
    }

    /// Renders a sheet with a number.
    pub fn print(&self, number: &str, header: Color) -> Sheet {
        // The cap height of this font is 0.729 em.
        let font = self
            .font
            .as_scaled(PxScale::from(SHEET_DIGIT_HEIGHT / 0.729 * self.font.height_unscaled() / self.em()));
        let text_width: f32 = number.chars().map(|digit| font.h_advance(font.glyph_id(digit))).sum();
        let width = (text_width + 0.55 * SHEET_DIGIT_HEIGHT) as usize;
        let mut sheet = Sheet::blank(width, (2.15 * SHEET_DIGIT_HEIGHT) as usize, header);
        let mut pen = (width as f32 - text_width) / 2.0;
        for digit in number.chars() {
            let id = font.glyph_id(digit);
            let glyph = id.with_scale_and_position(font.scale(), point(pen, 1.62 * SHEET_DIGIT_HEIGHT));
            if let Some(outline) = self.font.outline_glyph(glyph) {
                let corner = outline.px_bounds().min;
                outline.draw(|x, y, coverage| {
                    sheet.blend_ink(corner.x as usize + x as usize, corner.y as usize + y as usize, coverage);
                });
            }
            pen += font.h_advance(id);
        }
        sheet
    }

    fn em(&self) -> f32 {
        self.font.units_per_em().unwrap_or(2048.0)
    }
}

impl Sheet {
    fn blank(width: usize, height: usize, header: Color) -> Self {
        let paper = [243.0, 243.0, 240.0];
        let mut pixels = vec![paper; width * height];
        for row in 0..height {
            let share = row as f32 / height as f32;
            for column in 0..width {
                let across = column as f32 / width as f32;
                let is_pin = (share - 0.5).abs() > 0.44 && (across - 0.5).abs() > 0.45;
                let pixel = &mut pixels[row * width + column];
                if is_pin {
                    *pixel = [120.0; 3];
                } else if !(0.22..=0.9).contains(&share) {
                    *pixel = header;
                }
            }
        }
        Self { width, height, pixels }
    }

    fn blend_ink(&mut self, x: usize, y: usize, coverage: f32) {
        if x < self.width && y < self.height {
            let pixel = &mut self.pixels[y * self.width + x];
            *pixel = mix_colors(*pixel, [22.0, 22.0, 26.0], coverage);
        }
    }

    /// Draws the sheet onto the canvas.
    pub fn draw_on(&self, canvas: &mut Canvas, placement: BibPlacement) {
        let BibPlacement { centre, digit_height, rotation, slant } = placement;
        let half_width = self.width as f32 / SHEET_DIGIT_HEIGHT * digit_height / 2.0;
        let half_height = self.height as f32 / SHEET_DIGIT_HEIGHT * digit_height / 2.0;
        let (sine, cosine) = rotation.sin_cos();
        let corners =
            [(-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)].map(|(right, down): (f32, f32)| {
                let (x, y) = (right * half_width, down * half_height * (1.0 + right * slant));
                Point::new(centre.x + x * cosine - y * sine, centre.y + x * sine + y * cosine)
            });
        let pixel_size = SHEET_DIGIT_HEIGHT / digit_height;
        canvas.blend(Bounds::around(&corners, 2.0), |x, y| {
            let (x, y) = (x - centre.x, y - centre.y);
            let right = (x * cosine + y * sine) / half_width;
            let down = (y * cosine - x * sine) / half_height / (1.0 + right * slant);
            let inside = (1.0 - right.abs()).min((1.0 - down.abs()) * half_height / half_width) * half_width;
            // The paper bends around the chest: its sides are darker.
            let light = 1.0 - 0.16 * right * right;
            (self.sample_square(right, down, pixel_size).map(|value| value * light), (inside + 0.75) / 1.5)
        });
    }

    /// Returns the mean colour of a square of `size` sheet pixels around a point given in -1 to 1 of the half sides.
    fn sample_square(&self, right: f32, down: f32, size: f32) -> Color {
        let centre = ((right + 1.0) / 2.0 * self.width as f32, (down + 1.0) / 2.0 * self.height as f32);
        let steps = (size.ceil() as i32).clamp(1, 8);
        let mut sum = [0.0; 3];
        for step in 0..steps * steps {
            let offset = |index: i32| ((index as f32 + 0.5) / steps as f32 - 0.5) * size;
            let column = (centre.0 + offset(step % steps)).clamp(0.0, self.width as f32 - 1.0) as usize;
            let row = (centre.1 + offset(step / steps)).clamp(0.0, self.height as f32 - 1.0) as usize;
            let pixel = self.pixels[row * self.width + column];
            sum = [0, 1, 2].map(|channel| sum[channel] + pixel[channel]);
        }
        sum.map(|value| value / (steps * steps) as f32)
    }
}
