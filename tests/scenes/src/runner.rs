//! Draws a runner: a synthetic body with a head and a bib on the chest. Lengths are in face units (see
//! [`Pose::face_width`]) from the chin, in proportions measured on race photos.

use crate::bib::{BibPlacement, Sheet};
use crate::canvas::{Bounds, Canvas, Color, LimbEnd, Point, edge_coverage, shade};
use crate::head::Head;
use crate::noise::{self, Rng};
use crate::portrait::Pose;

/// Height of a bib's digits.
const DIGIT_HEIGHT: f32 = 0.54;
/// From the chin down to the middle of the bib.
const BIB_BELOW_CHIN: f32 = 2.5;
/// From the chin down to the shoes.
const FEET_BELOW_CHIN: f32 = 9.6;

/// A runner to draw.
pub struct RunnerFigure<'a> {
    /// The head.
    pub head: Head<'a>,
    /// The bib, if one is worn.
    pub sheet: Option<&'a Sheet>,
    /// Colour of the shirt.
    pub shirt: Color,
    /// Position and size.
    pub pose: Pose,
}

/// Draws the parts of a body; points are in face units from the chin.
struct BodyPainter<'a> {
    canvas: &'a mut Canvas,
    pose: Pose,
    skin: Color,
}

/// Draws a runner; `seed` determines the stride and how the bib hangs.
pub fn draw_runner(canvas: &mut Canvas, runner: &RunnerFigure<'_>, seed: u64) {
    let mut rng = Rng::new(seed);
    let skin = runner.head.skin_color();
    let light = runner.pose.light;
    let skin = [0, 1, 2].map(|channel| skin[channel] * light[channel]);
    let mut body = BodyPainter { canvas, pose: runner.pose, skin };
    let stride = if rng.uniform(0.0, 1.0) < 0.5 { 1.0 } else { -1.0 };
    body.draw_shadow();
    body.draw_legs(stride);
    body.draw_arm(-1.0, stride);
    body.draw_arm(1.0, -stride);
    body.draw_torso(runner.shirt, seed);
    body.draw_limb([[0.0, -0.25, 0.42], [0.0, 0.75, 0.46]], skin.map(|value| value * 0.9));
    let placement = BibPlacement {
        centre: body.to_canvas(rng.uniform(-0.12, 0.12), BIB_BELOW_CHIN + rng.uniform(-0.15, 0.2)),
        digit_height: DIGIT_HEIGHT * runner.pose.face_width * rng.uniform(0.92, 1.1),
        rotation: rng.uniform(-0.09, 0.09),
        slant: rng.uniform(-0.06, 0.06),
    };
    if let Some(sheet) = runner.sheet {
        sheet.draw_on(body.canvas, placement);
    }
    runner.head.draw(body.canvas, runner.pose);
}

impl BodyPainter<'_> {
    fn to_canvas(&self, right: f32, down: f32) -> Point {
        let unit = self.pose.face_width;
        Point::new(self.pose.chin.x + right * unit, self.pose.chin.y + down * unit)
    }

    /// Draws a limb between two ends, each given as right, down and half the thickness.
    fn draw_limb(&mut self, ends: [[f32; 3]; 2], color: Color) {
        let unit = self.pose.face_width;
        let ends = ends
            .map(|[right, down, half]| LimbEnd { centre: self.to_canvas(right, down), radius: half * unit });
        self.canvas.draw_limb(ends, color);
    }

    fn draw_shadow(&mut self) {
        let unit = self.pose.face_width;
        let centre = self.to_canvas(0.3, FEET_BELOW_CHIN);
        self.canvas.blend(Bounds::around(&[centre], 3.2 * unit), |x, y| {
            let radius = ((x - centre.x) / (2.6 * unit)).hypot((y - centre.y) / (0.4 * unit));
            ([38.0, 38.0, 42.0], 0.55 * (1.0 - radius).max(0.0).sqrt())
        });
    }

    /// One leg on the ground, the other bent back; `stride` (1 or -1) decides which.
    fn draw_legs(&mut self, stride: f32) {
        let (skin, shorts) = (self.skin, [34.0, 36.0, 48.0]);
        let lifted = self.skin.map(|value| value * 0.78);
        self.draw_limb([[-0.5 * stride, 5.6, 0.5], [-0.6 * stride, 7.3, 0.36]], lifted);
        self.draw_limb([[-0.6 * stride, 7.3, 0.34], [-0.75 * stride, 8.3, 0.24]], lifted);
        self.draw_limb([[-0.75 * stride, 8.4, 0.27], [-0.85 * stride, 8.7, 0.3]], [176.0, 60.0, 52.0]);
        self.draw_limb([[0.5 * stride, 5.6, 0.52], [0.45 * stride, 7.5, 0.38]], skin);
        self.draw_limb([[0.45 * stride, 7.5, 0.36], [0.4 * stride, 9.1, 0.22]], skin);
        self.draw_limb([[0.38 * stride, 9.3, 0.28], [0.42 * stride, 9.6, 0.32]], [204.0, 72.0, 58.0]);
        self.draw_limb([[-0.5, 4.7, 0.62], [-0.52, 6.1, 0.66]], shorts);
        self.draw_limb([[0.5, 4.7, 0.62], [0.52, 6.1, 0.66]], shorts);
    }

    /// `side` is -1 or 1, `swing` 1 is forward and up. Hands stay beside the bib.
    fn draw_arm(&mut self, side: f32, swing: f32) {
        let elbow = (1.95 * side, 2.75 - 0.25 * swing);
        let hand = (1.62 * side, elbow.1 - 0.7 - 0.75 * swing.max(0.0) + 0.9 * (-swing).max(0.0));
        let skin = self.skin;
        self.draw_limb([[1.3 * side, 1.15, 0.36], [elbow.0, elbow.1, 0.27]], skin);
        self.draw_limb([[elbow.0, elbow.1, 0.27], [hand.0, hand.1, 0.19]], skin);
        self.draw_limb([[hand.0, hand.1, 0.24], [hand.0 - 0.06 * side, hand.1 - 0.16, 0.22]], skin);
    }

    /// Shoulders to waist, with folds of cloth.
    fn draw_torso(&mut self, shirt: Color, seed: u64) {
        let unit = self.pose.face_width;
        let chin = self.pose.chin;
        let corners = [self.to_canvas(-1.8, 0.3), self.to_canvas(1.8, 5.2)];
        self.canvas.blend(Bounds::around(&corners, 2.0), |x, y| {
            let (right, down) = ((x - chin.x) / unit, (y - chin.y) / unit);
            let half = torso_half_width(down);
            let inside = (half - right.abs()).min(down - shirt_top(right)).min(5.0 - down) * unit;
            let fold = noise::fractal_noise(seed, right * 1.6, down * 0.7) - 0.5;
            let color = shade(shirt, right / half.max(0.1));
            (color.map(|value| value * (1.0 + 0.35 * fold)), edge_coverage(inside))
        });
    }
}

/// Half the torso's width, `down` below the chin.
fn torso_half_width(down: f32) -> f32 {
    1.36 - 0.3 * ((down - 1.2) / 3.8).clamp(0.0, 1.0)
}

/// How far below the chin the shirt begins: a round neck, shoulders that slope to the sides.
fn shirt_top(right: f32) -> f32 {
    let across = right.abs();
    let neck = 0.44 - 0.28 * (across / 0.5).min(1.0).powi(2);
    neck + 0.34 * (across - 0.5).max(0.0) + 0.5 * (across - 1.05).max(0.0)
}
