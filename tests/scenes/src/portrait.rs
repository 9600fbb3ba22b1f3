//! Portraits of real people, drawn onto synthetic bodies: cut out with a soft edge, rotated, mirrored and relit.

use std::path::Path;

use anyhow::Context;
use image::RgbImage;

use crate::canvas::{Bounds, Canvas, Color, Point};

/// A portrait file and where the head is in it.
#[derive(Clone, Copy, Debug)]
pub struct PortraitFile {
    /// File name in the folder of portraits.
    pub file: &'static str,
    /// The face box that a detector returns: left, top, width, height in pixels.
    pub face: [f32; 4],
    /// Height of the hair above that box, in face units (see [`Pose::face_width`]).
    pub hair: f32,
    /// Half the width of the head with its hair, in face units.
    pub half_width: f32,
}

/// A decoded portrait.
pub struct Portrait {
    picture: RgbImage,
    file: PortraitFile,
}

/// Where and how a head is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Pose {
    /// The middle of the chin.
    pub chin: Point,
    /// The unit of a body, in pixels of the canvas: the larger of the face's width and .8 of its height.
    pub face_width: f32,
    /// Clockwise rotation, radians.
    pub rotation: f32,
    /// Whether left and right are swapped.
    pub is_mirrored: bool,
    /// Factors of red, green and blue.
    pub light: Color,
}

impl Portrait {
    /// Reads a portrait from a folder.
    ///
    /// # Errors
    /// When the file is missing or is not a picture.
    pub fn open(folder: &Path, file: PortraitFile) -> anyhow::Result<Self> {
        let path = folder.join(file.file);
        let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let picture =
            crate::jpeg::decode(&bytes).with_context(|| format!("{} is not a picture", path.display()))?;
        Ok(Self { picture, file })
    }

    /// The face unit in pixels of the portrait, measured as the bib reader does.
    fn face_unit(&self) -> f32 {
        self.file.face[2].max(0.8 * self.file.face[3])
    }

    fn chin_point(&self) -> Point {
        let [left, top, width, height] = self.file.face;
        Point::new(left + width / 2.0, top + height)
    }

    /// Returns the mean colour of cheeks and forehead.
    pub fn skin_color(&self) -> Color {
        let [left, top, width, height] = self.file.face;
        let mut sum = [0.0; 3];
        let samples = [(0.28, 0.58), (0.72, 0.58), (0.5, 0.2)];
        for (right, down) in samples {
            let color =
                self.sample_square(Point::new(left + right * width, top + down * height), width / 8.0);
            sum = [0, 1, 2].map(|channel| sum[channel] + color[channel] / samples.len() as f32);
        }
        sum
    }

    /// Draws the head onto the canvas.
    pub fn draw_head(&self, canvas: &mut Canvas, pose: Pose) {
        let unit = self.face_unit();
        let (sine, cosine) = pose.rotation.sin_cos();
        let chin = self.chin_point();
        let face_height = self.file.face[3] / unit;
        let pixel = unit / pose.face_width;
        canvas.blend(Bounds::around(&[pose.chin], 2.2 * pose.face_width), |x, y| {
            let (x, y) = ((x - pose.chin.x) / pose.face_width, (y - pose.chin.y) / pose.face_width);
            let (right, down) = (x * cosine + y * sine, y * cosine - x * sine);
            let coverage = self.coverage(right, down, face_height);
            if coverage <= 0.0 {
                return ([0.0; 3], 0.0);
            }
            let right = if pose.is_mirrored { -right } else { right };
            let color = self.sample_square(Point::new(chin.x + right * unit, chin.y + down * unit), pixel);
            ([0, 1, 2].map(|channel| (color[channel] * pose.light[channel]).min(255.0)), coverage)
        });
    }

    /// The opacity of the portrait (0 to 1) at a point given in face units from the chin: an egg shape with a soft edge.
    fn coverage(&self, right: f32, down: f32, face_height: f32) -> f32 {
        let top = face_height + self.file.hair;
        let middle = -0.52 * top;
        let half_height = if down < middle { top + middle } else { 0.06 - middle };
        // Narrower towards the chin.
        let narrowing =
            if down > middle { 1.0 - 0.2 * ((down - middle) / half_height).min(1.0) } else { 1.0 };
        let radius = (right / (self.file.half_width * narrowing)).hypot((down - middle) / half_height);
        ((1.0 - radius) / 0.12 + 0.5).clamp(0.0, 1.0)
    }

    /// Fills the canvas with head and shoulders, the chin where the pose says.
    pub fn draw_selfie(&self, canvas: &mut Canvas, pose: Pose) {
        let unit = self.face_unit() / pose.face_width;
        let (sine, cosine) = pose.rotation.sin_cos();
        let chin = self.chin_point();
        canvas.fill(|x, y| {
            let (x, y) = (x + 0.5 - pose.chin.x, y + 0.5 - pose.chin.y);
            let (right, down) = (x * cosine + y * sine, y * cosine - x * sine);
            let right = if pose.is_mirrored { -right } else { right };
            let color = self.sample_square(Point::new(chin.x + right * unit, chin.y + down * unit), unit);
            [0, 1, 2].map(|channel| color[channel] * pose.light[channel])
        });
    }

    /// Returns the mean colour of a square of `size` portrait pixels.
    fn sample_square(&self, centre: Point, size: f32) -> Color {
        let steps = (size.ceil() as i32).clamp(1, 4);
        let offset = |index: i32| ((index as f32 + 0.5) / steps as f32 - 0.5) * size;
        let mut sum = [0.0; 3];
        for step in 0..steps * steps {
            let color = self.interpolate_color(Point::new(
                centre.x + offset(step % steps),
                centre.y + offset(step / steps),
            ));
            sum = [0, 1, 2].map(|channel| sum[channel] + color[channel]);
        }
        sum.map(|value| value / (steps * steps) as f32)
    }

    /// Returns the bilinearly interpolated colour at a point; the border continues outside the picture.
    fn interpolate_color(&self, point: Point) -> Color {
        let (x, y) = ((point.x - 0.5).max(0.0), (point.y - 0.5).max(0.0));
        let (right, down) = (x.fract(), y.fract());
        let pixel = |column: u32, row: u32| {
            let column = (x as u32 + column).min(self.picture.width() - 1);
            let row = (y as u32 + row).min(self.picture.height() - 1);
            self.picture.get_pixel(column, row).0.map(f32::from)
        };
        let corners = [pixel(0, 0), pixel(1, 0), pixel(0, 1), pixel(1, 1)];
        let weights =
            [(1.0 - right) * (1.0 - down), right * (1.0 - down), (1.0 - right) * down, right * down];
        [0, 1, 2].map(|channel| (0..4).map(|corner| corners[corner][channel] * weights[corner]).sum())
    }
}
