//! A canvas of sRGB values as floats (0 to 255), onto which shapes with soft edges are blended.

use image::RgbImage;

use crate::noise;

/// Red, green, blue, each 0 to 255.
pub type Color = [f32; 3];

/// A point of the canvas, pixels from the top left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Pixels to the right.
    pub x: f32,
    /// Pixels down.
    pub y: f32,
}

impl Point {
    /// Creates a point.
    pub fn new(x: f32, y: f32) -> Self {
        Self { x, y }
    }
}

/// One end of a limb.
#[derive(Clone, Copy, Debug)]
pub struct LimbEnd {
    /// The middle of the end.
    pub centre: Point,
    /// Half the thickness, pixels.
    pub radius: f32,
}

/// An RGB picture that is drawn on.
pub struct Canvas {
    width: u32,
    height: u32,
    pixels: Vec<Color>,
}

/// A rectangle of the canvas, pixels.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Left, top, right, bottom; clipped to the canvas when used.
    pub sides: [f32; 4],
}

impl Bounds {
    /// Returns the bounding box of some points, grown by `margin` pixels.
    pub fn around(points: &[Point], margin: f32) -> Self {
        let mut sides = [f32::MAX, f32::MAX, f32::MIN, f32::MIN];
        for point in points {
            sides[0] = sides[0].min(point.x - margin);
            sides[1] = sides[1].min(point.y - margin);
            sides[2] = sides[2].max(point.x + margin);
            sides[3] = sides[3].max(point.y + margin);
        }
        Self { sides }
    }
}

impl Canvas {
    /// Creates a black canvas.
    pub fn new(width: u32, height: u32) -> Self {
        Self { width, height, pixels: vec![[0.0; 3]; width as usize * height as usize] }
    }

    /// Width, pixels.
    pub fn width(&self) -> f32 {
        self.width as f32
    }

    /// Height, pixels.
    pub fn height(&self) -> f32 {
        self.height as f32
    }

    /// Sets every pixel to the colour of its position.
    pub fn fill(&mut self, color: impl Fn(f32, f32) -> Color) {
        let width = self.width as usize;
        for (index, pixel) in self.pixels.iter_mut().enumerate() {
            *pixel = color((index % width) as f32, (index / width) as f32);
        }
    }

    /// Blends colours over a part of the canvas. `paint` returns the colour and coverage (0 to 1) of a point.
    pub fn blend(&mut self, bounds: Bounds, paint: impl Fn(f32, f32) -> (Color, f32)) {
        let [left, top, right, bottom] = bounds.sides;
        let columns = left.max(0.0) as usize..(right.ceil().clamp(0.0, self.width()) as usize);
        for row in top.max(0.0) as usize..(bottom.ceil().clamp(0.0, self.height()) as usize) {
            for column in columns.clone() {
                let (color, coverage) = paint(column as f32 + 0.5, row as f32 + 0.5);
                let pixel = &mut self.pixels[row * self.width as usize + column];
                for (below, above) in pixel.iter_mut().zip(color) {
                    *below += (above - *below) * coverage.clamp(0.0, 1.0);
                }
            }
        }
    }

    /// Draws a limb: a capsule whose radius changes from one end to the other, darker towards its edges.
    pub fn draw_limb(&mut self, ends: [LimbEnd; 2], color: Color) {
        let [from, to] = ends;
        let margin = from.radius.max(to.radius) + 2.0;
        self.blend(Bounds::around(&[from.centre, to.centre], margin), |x, y| {
            let (along, distance) = nearest_on_segment(from.centre, to.centre, Point::new(x, y));
            let radius = from.radius + (to.radius - from.radius) * along;
            (shade(color, distance / radius), edge_coverage(radius - distance))
        });
    }

    /// Converts the canvas to 8 bits, with sensor grain of standard deviation `grain` (in 8-bit steps).
    pub fn to_image(&self, seed: u64, grain: f32) -> RgbImage {
        RgbImage::from_fn(self.width, self.height, |x, y| {
            let color = self.pixels[(y * self.width) as usize + x as usize];
            let shared = noise::sensor_grain(seed, i64::from(x), i64::from(y));
            let mut channel = 0;
            image::Rgb(color.map(|value| {
                channel += 1;
                let own = noise::sensor_grain(seed + channel, i64::from(x), i64::from(y));
                (value + grain * (0.8 * shared + 0.6 * own)).round().clamp(0.0, 255.0) as u8
            }))
        })
    }
}

/// Returns how much of a pixel is covered by a shape whose edge is `inside` pixels away (negative when outside); to be
/// clamped to 0 to 1.
pub fn edge_coverage(inside: f32) -> f32 {
    (inside + 0.75) / 1.5
}

/// Shades a colour of something round at the fraction `offset` of the way from its middle to its edge.
pub fn shade(color: Color, offset: f32) -> Color {
    let light = 1.06 - 0.32 * offset.clamp(0.0, 1.0).powi(2);
    color.map(|value| value * light)
}

/// Mixes two colours; `fraction` 0 is the first one, 1 the second.
pub fn mix_colors(one: Color, other: Color, fraction: f32) -> Color {
    let fraction = fraction.clamp(0.0, 1.0);
    [0, 1, 2].map(|channel| one[channel] + (other[channel] - one[channel]) * fraction)
}

/// Returns how far along a segment the point nearest to `point` is (0 to 1), and its distance in pixels.
fn nearest_on_segment(from: Point, to: Point, point: Point) -> (f32, f32) {
    let (across, down) = (to.x - from.x, to.y - from.y);
    let length = (across * across + down * down).max(1e-6);
    let along = (((point.x - from.x) * across + (point.y - from.y) * down) / length).clamp(0.0, 1.0);
    (along, (point.x - from.x - along * across).hypot(point.y - from.y - along * down))
}
