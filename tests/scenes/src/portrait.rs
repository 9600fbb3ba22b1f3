//! Portraits of real people, put onto drawn bodies: cut out with a soft edge, turned, mirrored and relit.

use std::path::Path;

use anyhow::Context;
use image::RgbImage;

use super::canvas::{Bounds, Canvas, Color, Point, place};

/// A portrait with the face in it: left, top, width, height in pixels.
#[derive(Clone, Copy, Debug)]
pub struct PortraitFile {
    /// In the folder of portraits.
    pub file: &'static str,
    /// The box that a face detector gives.
    pub face: [f32; 4],
    /// Height of the hair above that box, in face widths.
    pub hair: f32,
    /// Half the width of the head with its hair, in face widths.
    pub half_width: f32,
}

/// A portrait in memory.
pub struct Portrait {
    picture: RgbImage,
    file: PortraitFile,
}

/// How a head is put onto the canvas.
#[derive(Clone, Copy, Debug)]
pub struct Pose {
    /// The middle of the chin.
    pub chin: Point,
    /// Width of the face, in pixels.
    pub face_width: f32,
    /// Radians, clockwise.
    pub rotation: f32,
    /// Left and right changed.
    pub is_mirrored: bool,
    /// What light does to red, green and blue.
    pub light: Color,
}

impl Portrait {
    /// Reads a portrait.
    pub fn open(folder: &Path, file: PortraitFile) -> anyhow::Result<Self> {
        let path = folder.join(file.file);
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let picture =
            super::jpeg::decode(&bytes).with_context(|| format!("{} is no picture", path.display()))?;
        Ok(Self { picture, file })
    }

    /// The unit of a body: the face's width as the bib reader measures it.
    fn face_unit(&self) -> f32 {
        self.file.face[2].max(0.8 * self.file.face[3])
    }

    fn chin_point(&self) -> Point {
        let [left, top, width, height] = self.file.face;
        place(left + width / 2.0, top + height)
    }

    /// The colour of the cheeks.
    pub fn skin_color(&self) -> Color {
        let [left, top, width, height] = self.file.face;
        let mut sum = [0.0; 3];
        let samples = [(0.28, 0.58), (0.72, 0.58), (0.5, 0.2)];
        for (right, down) in samples {
            let color = self.sample_square(place(left + right * width, top + down * height), width / 8.0);
            sum = [0, 1, 2].map(|channel| sum[channel] + color[channel] / samples.len() as f32);
        }
        sum
    }

    /// Puts the head onto the canvas.
    pub fn draw_head(&self, canvas: &mut Canvas, pose: Pose) {
        let unit = self.face_unit();
        let (sine, cosine) = pose.rotation.sin_cos();
        let chin = self.chin_point();
        let face_height = self.file.face[3] / unit;
        let pixel = unit / pose.face_width;
        canvas.blend(Bounds::around(&[pose.chin], 2.2 * pose.face_width), |x, y| {
            let (x, y) = ((x - pose.chin.x) / pose.face_width, (y - pose.chin.y) / pose.face_width);
            let (right, down) = (x * cosine + y * sine, y * cosine - x * sine);
            let cover = self.coverage(right, down, face_height);
            if cover <= 0.0 {
                return ([0.0; 3], 0.0);
            }
            let right = if pose.is_mirrored { -right } else { right };
            let color = self.sample_square(place(chin.x + right * unit, chin.y + down * unit), pixel);
            ([0, 1, 2].map(|channel| (color[channel] * pose.light[channel]).min(255.0)), cover)
        });
    }

    /// How much of the portrait is used at a place given in face widths from the chin: an egg with a soft edge.
    fn coverage(&self, right: f32, down: f32, face_height: f32) -> f32 {
        let top = face_height + self.file.hair;
        let middle = -0.52 * top;
        let tall = if down < middle { top + middle } else { 0.06 - middle };
        // Narrower towards the chin.
        let narrowing = if down > middle { 1.0 - 0.2 * ((down - middle) / tall).min(1.0) } else { 1.0 };
        let off = (right / (self.file.half_width * narrowing)).hypot((down - middle) / tall);
        ((1.0 - off) / 0.12 + 0.5).clamp(0.0, 1.0)
    }

    /// Head and shoulders as a picture of its own; the pose places the chin in it.
    pub fn draw_selfie(&self, canvas: &mut Canvas, pose: Pose) {
        let unit = self.face_unit() / pose.face_width;
        let (sine, cosine) = pose.rotation.sin_cos();
        let chin = self.chin_point();
        canvas.fill(|x, y| {
            let (x, y) = (x + 0.5 - pose.chin.x, y + 0.5 - pose.chin.y);
            let (right, down) = (x * cosine + y * sine, y * cosine - x * sine);
            let right = if pose.is_mirrored { -right } else { right };
            let color = self.sample_square(place(chin.x + right * unit, chin.y + down * unit), unit);
            [0, 1, 2].map(|channel| color[channel] * pose.light[channel])
        });
    }

    /// Mean colour of a square of `size` portrait pixels.
    fn sample_square(&self, at: Point, size: f32) -> Color {
        let steps = (size.ceil() as i32).clamp(1, 4);
        let offset = |index: i32| ((index as f32 + 0.5) / steps as f32 - 0.5) * size;
        let mut sum = [0.0; 3];
        for step in 0..steps * steps {
            let color =
                self.interpolate_color(place(at.x + offset(step % steps), at.y + offset(step / steps)));
            sum = [0, 1, 2].map(|channel| sum[channel] + color[channel]);
        }
        sum.map(|value| value / (steps * steps) as f32)
    }

    /// The colour at a place, between pixels too; the border goes on beyond the picture.
    fn interpolate_color(&self, at: Point) -> Color {
        let (x, y) = ((at.x - 0.5).max(0.0), (at.y - 0.5).max(0.0));
        let (right, down) = (x.fract(), y.fract());
        let pixel = |column: u32, row: u32| {
            let column = (x as u32 + column).min(self.picture.width() - 1);
            let row = (y as u32 + row).min(self.picture.height() - 1);
            self.picture.get_pixel(column, row).0.map(f32::from)
        };
        let corners = [pixel(0, 0), pixel(1, 0), pixel(0, 1), pixel(1, 1)];
        let shares = [(1.0 - right) * (1.0 - down), right * (1.0 - down), (1.0 - right) * down, right * down];
        [0, 1, 2].map(|channel| (0..4).map(|corner| corners[corner][channel] * shares[corner]).sum())
    }
}
