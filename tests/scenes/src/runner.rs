//! A runner: a drawn body with a real head on it and a race number on the chest. Everything is measured in face
//! widths from the chin, in the proportions that photos of races were measured to have.

use super::bib::{Hanging, Sheet};
use super::canvas::{Bounds, Canvas, Color, Place, edge, place, shaded};
use super::noise::{self, Dice};
use super::portrait::{Portrait, Pose};

/// Height of a bib's digits.
const DIGIT_HEIGHT: f32 = 0.54;
/// From the chin down to the middle of the bib.
const BIB_BELOW_CHIN: f32 = 2.5;
/// From the chin down to the shoes.
const FEET_BELOW_CHIN: f32 = 9.6;

/// What is put together.
pub struct Runner<'a> {
    /// The head.
    pub portrait: &'a Portrait,
    /// The race number.
    pub sheet: &'a Sheet,
    /// Colour of the shirt.
    pub shirt: Color,
    /// Where and how large.
    pub pose: Pose,
}

/// The body's places are given in face widths from the chin.
struct Body<'a> {
    canvas: &'a mut Canvas,
    pose: Pose,
    skin: Color,
}

/// Draws a runner; `seed` decides the stride and how the bib hangs.
pub fn draw(canvas: &mut Canvas, runner: &Runner<'_>, seed: u64) {
    let mut dice = Dice::new(seed);
    let skin = runner.portrait.skin();
    let light = runner.pose.light;
    let skin = [0, 1, 2].map(|channel| skin[channel] * light[channel]);
    let mut body = Body { canvas, pose: runner.pose, skin };
    let stride = if dice.between(0.0, 1.0) < 0.5 { 1.0 } else { -1.0 };
    body.shadow();
    body.legs(stride);
    body.arm(-1.0, stride);
    body.arm(1.0, -stride);
    body.torso(runner.shirt, seed);
    body.limb([(0.0, -0.25, 0.42), (0.0, 0.75, 0.46)], skin.map(|value| value * 0.9));
    let hanging = Hanging {
        centre: body.at(dice.between(-0.12, 0.12), BIB_BELOW_CHIN + dice.between(-0.15, 0.2)),
        digit_height: DIGIT_HEIGHT * runner.pose.face_width * dice.between(0.92, 1.1),
        turn: dice.between(-0.09, 0.09),
        slant: dice.between(-0.06, 0.06),
    };
    runner.sheet.hang(body.canvas, hanging);
    runner.portrait.put(body.canvas, runner.pose);
}

impl Body<'_> {
    fn at(&self, right: f32, down: f32) -> Place {
        let unit = self.pose.face_width;
        place(self.pose.chin.x + right * unit, self.pose.chin.y + down * unit)
    }

    /// A limb between two places, each with its half thickness.
    fn limb(&mut self, ends: [(f32, f32, f32); 2], color: Color) {
        let unit = self.pose.face_width;
        let ends = ends.map(|(right, down, half)| (self.at(right, down), half * unit));
        self.canvas.limb(ends, color);
    }

    fn shadow(&mut self) {
        let unit = self.pose.face_width;
        let centre = self.at(0.3, FEET_BELOW_CHIN);
        self.canvas.lay(Bounds::around(&[centre], 3.2 * unit), |x, y| {
            let off = ((x - centre.x) / (2.6 * unit)).hypot((y - centre.y) / (0.4 * unit));
            ([38.0, 38.0, 42.0], 0.55 * (1.0 - off).max(0.0).sqrt())
        });
    }

    /// One leg on the ground, the other bent back; `stride` says which.
    fn legs(&mut self, stride: f32) {
        let (skin, shorts) = (self.skin, [34.0, 36.0, 48.0]);
        let lifted = self.skin.map(|value| value * 0.78);
        self.limb([(-0.5 * stride, 5.6, 0.5), (-0.6 * stride, 7.3, 0.36)], lifted);
        self.limb([(-0.6 * stride, 7.3, 0.34), (-0.75 * stride, 8.3, 0.24)], lifted);
        self.limb([(-0.75 * stride, 8.4, 0.27), (-0.85 * stride, 8.7, 0.3)], [176.0, 60.0, 52.0]);
        self.limb([(0.5 * stride, 5.6, 0.52), (0.45 * stride, 7.5, 0.38)], skin);
        self.limb([(0.45 * stride, 7.5, 0.36), (0.4 * stride, 9.1, 0.22)], skin);
        self.limb([(0.38 * stride, 9.3, 0.28), (0.42 * stride, 9.6, 0.32)], [204.0, 72.0, 58.0]);
        self.limb([(-0.5, 4.7, 0.62), (-0.52, 6.1, 0.66)], shorts);
        self.limb([(0.5, 4.7, 0.62), (0.52, 6.1, 0.66)], shorts);
    }

    /// Hands stay beside the bib; `swing` 1 is forward and up.
    fn arm(&mut self, side: f32, swing: f32) {
        let elbow = (1.95 * side, 2.75 - 0.25 * swing);
        let hand = (1.62 * side, elbow.1 - 0.7 - 0.75 * swing.max(0.0) + 0.9 * (-swing).max(0.0));
        let skin = self.skin;
        self.limb([(1.3 * side, 1.15, 0.36), (elbow.0, elbow.1, 0.27)], skin);
        self.limb([(elbow.0, elbow.1, 0.27), (hand.0, hand.1, 0.19)], skin);
        self.limb([(hand.0, hand.1, 0.24), (hand.0 - 0.06 * side, hand.1 - 0.16, 0.22)], skin);
    }

    /// Shoulders to waist, with folds.
    fn torso(&mut self, shirt: Color, seed: u64) {
        let unit = self.pose.face_width;
        let chin = self.pose.chin;
        let corners = [self.at(-1.8, 0.3), self.at(1.8, 5.2)];
        self.canvas.lay(Bounds::around(&corners, 2.0), |x, y| {
            let (right, down) = ((x - chin.x) / unit, (y - chin.y) / unit);
            let half = half_torso(down);
            let inside = (half - right.abs()).min(down - shoulder(right)).min(5.0 - down) * unit;
            let fold = noise::cloudy(seed, right * 1.6, down * 0.7) - 0.5;
            let color = shaded(shirt, right / half.max(0.1));
            (color.map(|value| value * (1.0 + 0.35 * fold)), edge(inside))
        });
    }
}

/// Half the torso's width at a height.
fn half_torso(down: f32) -> f32 {
    1.36 - 0.3 * ((down - 1.2) / 3.8).clamp(0.0, 1.0)
}

/// How far below the chin the shirt begins: a round neck, shoulders that fall off to the sides.
fn shoulder(right: f32) -> f32 {
    let off = right.abs();
    let neck = 0.44 - 0.28 * (off / 0.5).min(1.0).powi(2);
    neck + 0.34 * (off - 0.5).max(0.0) + 0.5 * (off - 1.05).max(0.0)
}
