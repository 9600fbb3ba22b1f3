//! A surface of 8-bit sRGB values kept as floats, on which shapes with soft edges are laid one over another.

use image::RgbImage;

use super::noise;

/// Red, green, blue, each 0 to 255.
pub type Color = [f32; 3];

/// A place on the canvas, in pixels from the top left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// To the right.
    pub x: f32,
    /// Down.
    pub y: f32,
}

/// Shorthand for a place.
pub fn place(x: f32, y: f32) -> Point {
    Point { x, y }
}

/// What is drawn on.
pub struct Canvas {
    width: u32,
    height: u32,
    pixels: Vec<Color>,
}

/// A part of the canvas, in pixels.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Left, top, right, bottom; clipped to the canvas when used.
    pub sides: [f32; 4],
}

impl Bounds {
    /// Everything within `reach` of some places.
    pub fn around(places: &[Point], reach: f32) -> Self {
        let mut sides = [f32::MAX, f32::MAX, f32::MIN, f32::MIN];
        for place in places {
            sides[0] = sides[0].min(place.x - reach);
            sides[1] = sides[1].min(place.y - reach);
            sides[2] = sides[2].max(place.x + reach);
            sides[3] = sides[3].max(place.y + reach);
        }
        Self { sides }
    }
}

impl Canvas {
    /// A black canvas.
    pub fn new(width: u32, height: u32) -> Self {
        Self { width, height, pixels: vec![[0.0; 3]; width as usize * height as usize] }
    }

    /// Pixels across.
    pub fn width(&self) -> f32 {
        self.width as f32
    }

    /// Pixels down.
    pub fn height(&self) -> f32 {
        self.height as f32
    }

    /// Colours every pixel by its place.
    pub fn fill(&mut self, color: impl Fn(f32, f32) -> Color) {
        let width = self.width as usize;
        for (index, pixel) in self.pixels.iter_mut().enumerate() {
            *pixel = color((index % width) as f32, (index / width) as f32);
        }
    }

    /// Lays colours over a part of the canvas; each comes with how much of it there is, 0 to 1.
    pub fn blend(&mut self, bounds: Bounds, paint: impl Fn(f32, f32) -> (Color, f32)) {
        let [left, top, right, bottom] = bounds.sides;
        let columns = left.max(0.0) as usize..(right.ceil().clamp(0.0, self.width()) as usize);
        for row in top.max(0.0) as usize..(bottom.ceil().clamp(0.0, self.height()) as usize) {
            for column in columns.clone() {
                let (color, cover) = paint(column as f32 + 0.5, row as f32 + 0.5);
                let pixel = &mut self.pixels[row * self.width as usize + column];
                for (below, above) in pixel.iter_mut().zip(color) {
                    *below += (above - *below) * cover.clamp(0.0, 1.0);
                }
            }
        }
    }

    /// A limb: round, of one thickness at each end, darker towards its edges.
    pub fn draw_limb(&mut self, ends: [(Point, f32); 2], color: Color) {
        let [(from, thin), (to, thick)] = ends;
        let reach = thin.max(thick) + 2.0;
        self.blend(Bounds::around(&[from, to], reach), |x, y| {
            let (along, away) = nearest_on_segment(from, to, place(x, y));
            let radius = thin + (thick - thin) * along;
            (shade(color, away / radius), edge_coverage(radius - away))
        });
    }

    /// The picture, with a sensor's grain of that standard deviation.
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

/// How much of a pixel lies inside a shape whose edge is `inside` pixels away.
pub fn edge_coverage(inside: f32) -> f32 {
    (inside + 0.75) / 1.5
}

/// A colour `off` of the way from the middle of something round to its edge.
pub fn shade(color: Color, off: f32) -> Color {
    let light = 1.06 - 0.32 * off.clamp(0.0, 1.0).powi(2);
    color.map(|value| value * light)
}

/// Two colours mixed.
pub fn mix_colors(one: Color, other: Color, share: f32) -> Color {
    let share = share.clamp(0.0, 1.0);
    [0, 1, 2].map(|channel| one[channel] + (other[channel] - one[channel]) * share)
}

/// How far along a line the nearest point to a place is (0 to 1), and how far away.
fn nearest_on_segment(from: Point, to: Point, place: Point) -> (f32, f32) {
    let (across, down) = (to.x - from.x, to.y - from.y);
    let length = (across * across + down * down).max(1e-6);
    let along = (((place.x - from.x) * across + (place.y - from.y) * down) / length).clamp(0.0, 1.0);
    (along, (place.x - from.x - along * across).hypot(place.y - from.y - along * down))
}
