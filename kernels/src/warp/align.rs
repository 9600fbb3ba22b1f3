//! Face alignment: maps five landmarks onto a template by the least-squares similarity transform (Umeyama, without
//! reflection) and samples the aligned square.

use crate::geometry::Point;
use crate::image::frame::Frame;
use crate::warp::{Border, Homography, Sampler};

/// Landmark positions that an embedder expects, in pixels of a square of `side` pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Template {
    /// In detector order: image-left eye, image-right eye, nose tip, image-left and image-right mouth corner.
    pub points: [Point; 5],
    /// Side of the square, pixels.
    pub side: u32,
}

/// `to = (a x - b y + tx, b x + a y + ty)`: rotation, uniform scale, translation in pixels; no reflection. `a` is the
/// scale times the cosine of the angle, `b` the scale times its sine.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Similarity {
    a: f32,
    b: f32,
    tx: f32,
    ty: f32,
}

impl Similarity {
    /// Fits the transform that minimises the sum of squared distances between the transformed `from` and `to`. `None`
    /// when all points of `from` coincide or the fitted scale is zero.
    fn fit(from: &[Point; 5], to: &[Point; 5]) -> Option<Self> {
        let mean = |points: &[Point; 5]| {
            let sum = points.iter().fold((0.0, 0.0), |s, p| (s.0 + f64::from(p.x), s.1 + f64::from(p.y)));
            (sum.0 / 5.0, sum.1 / 5.0)
        };
        let (from_mean, to_mean) = (mean(from), mean(to));
        let (mut a, mut b, mut spread) = (0.0, 0.0, 0.0);
        for (source, target) in from.iter().zip(to) {
            let (sx, sy) = (f64::from(source.x) - from_mean.0, f64::from(source.y) - from_mean.1);
            let (dx, dy) = (f64::from(target.x) - to_mean.0, f64::from(target.y) - to_mean.1);
            a += sx * dx + sy * dy;
            b += sx * dy - sy * dx;
            spread += sx * sx + sy * sy;
        }
        let (a, b) = (a / spread, b / spread);
        let usable = a.is_finite() && b.is_finite() && a.hypot(b) > 1e-9;
        usable.then_some(Self {
            a: a as f32,
            b: b as f32,
            tx: (to_mean.0 - a * from_mean.0 + b * from_mean.1) as f32,
            ty: (to_mean.1 - b * from_mean.0 - a * from_mean.1) as f32,
        })
    }

    #[cfg(test)]
    fn apply(&self, point: Point) -> Point {
        Point {
            x: self.a * point.x - self.b * point.y + self.tx,
            y: self.b * point.x + self.a * point.y + self.ty,
        }
    }

    /// The inverse transform: from the aligned square to the frame.
    fn inverse(&self) -> Homography {
        let square = self.a * self.a + self.b * self.b;
        let (a, b) = (self.a / square, self.b / square);
        Homography {
            x: [a, b, -a * self.tx - b * self.ty],
            y: [-b, a, b * self.tx - a * self.ty],
            w: [0.0; 2],
        }
    }
}

/// The transform from the aligned square to the frame; `None` when the landmarks coincide.
pub(crate) fn homography_to_face(landmarks: &[Point; 5], template: &Template) -> Option<Homography> {
    Some(Similarity::fit(landmarks, &template.points)?.inverse())
}

/// Writes the aligned square into `out`: row-major RGB, `side * side * 3` bytes, sampled bilinearly, black outside the
/// frame. All black when the landmarks coincide.
pub fn align(frame: Frame<'_>, landmarks: &[Point; 5], template: &Template, out: &mut Vec<u8>) {
    let stride = template.side as usize * 3;
    out.clear();
    out.resize(stride * template.side as usize, 0);
    let Some(homography) = homography_to_face(landmarks, template) else {
        return;
    };
    let sampler = Sampler { frame, border: Border::Black, homography };
    for (y, line) in out.chunks_exact_mut(stride).enumerate() {
        sampler.sample_row(y as f32, line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEMPLATE: Template = Template {
        points: [
            Point { x: 38.2946, y: 51.6963 },
            Point { x: 73.5318, y: 51.5014 },
            Point { x: 56.0252, y: 71.7366 },
            Point { x: 41.5493, y: 92.3655 },
            Point { x: 70.7299, y: 92.2041 },
        ],
        side: 112,
    };

    #[test]
    fn a_similarity_is_recovered() {
        let truth = Similarity { a: 0.4, b: -0.3, tx: 12.0, ty: -7.0 };
        let moved = TEMPLATE.points.map(|point| truth.apply(point));
        let found = Similarity::fit(&TEMPLATE.points, &moved).unwrap();
        for (found, truth) in
            [(found.a, truth.a), (found.b, truth.b), (found.tx, truth.tx), (found.ty, truth.ty)]
        {
            assert!((found - truth).abs() < 1e-4, "{found} for {truth}");
        }
    }

    #[test]
    fn landmarks_on_the_template_copy_the_square_unchanged() {
        let pixels: Vec<u8> =
            (0..120 * 120 * 3_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let frame = Frame::new(&pixels, 120, 120).unwrap();
        let mut out = Vec::new();
        align(frame, &TEMPLATE.points, &TEMPLATE, &mut out);
        for y in 0..112 {
            assert_eq!(out[y * 112 * 3..(y + 1) * 112 * 3], pixels[y * 120 * 3..][..112 * 3], "row {y}");
        }
    }

    #[test]
    fn a_rotated_face_is_aligned_upright() {
        // A bright spot at each landmark of a face rotated by 90 degrees and scaled by two.
        let rotation = Similarity { a: 0.0, b: 2.0, tx: 300.0, ty: 20.0 };
        let landmarks = TEMPLATE.points.map(|point| rotation.apply(point));
        let mut pixels = vec![0_u8; 320 * 320 * 3];
        for point in &landmarks {
            for (dx, dy) in (-3..=3).flat_map(|dx| (-3..=3).map(move |dy| (dx, dy))) {
                let (x, y) = (point.x.round() as i32 + dx, point.y.round() as i32 + dy);
                let start = ((y * 320 + x) * 3) as usize;
                pixels[start..start + 3].fill(255);
            }
        }
        let mut out = Vec::new();
        align(Frame::new(&pixels, 320, 320).unwrap(), &landmarks, &TEMPLATE, &mut out);
        for point in &TEMPLATE.points {
            let (x, y) = (point.x.round() as usize, point.y.round() as usize);
            assert_eq!(out[(y * 112 + x) * 3], 255);
        }
        let bright = out.iter().filter(|&&value| value > 128).count() / 3;
        assert!((40..100).contains(&bright), "{bright} bright pixels");
    }

    #[test]
    fn landmarks_in_one_point_give_black() {
        let pixels = [255; 4 * 4 * 3];
        let mut out = Vec::new();
        align(Frame::new(&pixels, 4, 4).unwrap(), &[Point { x: 1.0, y: 1.0 }; 5], &TEMPLATE, &mut out);
        assert_eq!(out.len(), 112 * 112 * 3);
        assert!(out.iter().all(|&value| value == 0));
    }
}
