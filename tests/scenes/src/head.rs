//! Heads of runners: cut out of a portrait, or drawn. Drawn ones look like nobody, for pictures that are published.

use crate::canvas::{Bounds, Canvas, Color, edge_coverage, mix_colors, shade};
use crate::noise;
use crate::portrait::{Portrait, Pose};

/// The head of a runner.
#[derive(Clone, Copy)]
pub enum Head<'a> {
    /// Of a real person.
    Portrait(&'a Portrait),
    /// Of nobody.
    Drawn(&'a DrawnHead),
}

impl Head<'_> {
    /// Returns the colour of the skin.
    pub fn skin_color(self) -> Color {
        match self {
            Self::Portrait(portrait) => portrait.skin_color(),
            Self::Drawn(head) => head.skin,
        }
    }

    /// Draws the head onto the canvas.
    pub fn draw(self, canvas: &mut Canvas, pose: Pose) {
        match self {
            Self::Portrait(portrait) => portrait.draw_head(canvas, pose),
            Self::Drawn(head) => head.draw(canvas, pose),
        }
    }
}

/// How hair is worn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hair {
    /// Close to the head.
    Short,
    /// Down to the shoulders.
    Long,
    /// Tied up.
    Bun,
}

/// What is worn on the head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Headwear {
    /// Nothing.
    None,
    /// A band over the forehead.
    Band(Color),
    /// A cap with a peak.
    Cap(Color),
}

/// A head that is drawn. Lengths are in face units from the chin, upwards negative (see [`Pose::face_width`]).
#[derive(Clone, Copy, Debug)]
pub struct DrawnHead {
    /// Colour of the skin.
    pub skin: Color,
    /// Colour of hair and brows.
    pub hair_color: Color,
    /// How hair is worn.
    pub hair: Hair,
    /// Colour of the eyes.
    pub eyes: Color,
    /// What is worn on the head.
    pub headwear: Headwear,
    /// Determines the small differences.
    pub seed: u64,
}

/// The middle of the face, and half its width and height.
const FACE: Oval = Oval { x: 0.0, y: -0.66, half_width: 0.5, half_height: 0.68 };
/// The head above the face.
const SKULL: Oval = Oval { x: 0.0, y: -0.86, half_width: 0.53, half_height: 0.6 };
/// Where hair, band and cap end on the forehead.
const HAIRLINE: f32 = -1.06;
/// The line of the eyes, and their distance from the middle.
const EYE_LINE: f32 = -0.74;
const EYE_DISTANCE: f32 = 0.2;

/// An ellipse.
#[derive(Clone, Copy)]
struct Oval {
    x: f32,
    y: f32,
    half_width: f32,
    half_height: f32,
}

impl Oval {
    /// The distance of a point from the middle: 1 on the edge.
    fn radius(self, place: Place) -> f32 {
        ((place.x - self.x) / self.half_width).hypot((place.y - self.y) / self.half_height)
    }
}

/// A point in face units, and how many pixels a unit has.
#[derive(Clone, Copy)]
struct Place {
    x: f32,
    y: f32,
    unit: f32,
}

impl Place {
    /// How much of the pixel an ellipse covers.
    fn in_oval(self, oval: Oval) -> f32 {
        let inside = (1.0 - oval.radius(self)) * oval.half_width.min(oval.half_height);
        edge_coverage(inside * self.unit).clamp(0.0, 1.0)
    }

    /// How much of the pixel lies above a line at this height.
    fn above(self, y: f32) -> f32 {
        edge_coverage((y - self.y) * self.unit).clamp(0.0, 1.0)
    }

    /// The same place, left and right swapped on the right half of the face.
    fn mirrored(self) -> Self {
        Self { x: -self.x.abs(), ..self }
    }
}

/// Layers of colour over each other, at one point.
struct Layers {
    color: Color,
    coverage: f32,
}

impl Layers {
    fn add(&mut self, color: Color, coverage: f32) {
        let coverage = coverage.clamp(0.0, 1.0);
        let total = coverage + self.coverage * (1.0 - coverage);
        if total > 0.0 {
            self.color = mix_colors(self.color, color, coverage / total);
        }
        self.coverage = total;
    }
}

impl DrawnHead {
    fn draw(&self, canvas: &mut Canvas, pose: Pose) {
        let (sine, cosine) = pose.rotation.sin_cos();
        canvas.blend(Bounds::around(&[pose.chin], 2.0 * pose.face_width), |x, y| {
            let (x, y) = ((x - pose.chin.x) / pose.face_width, (y - pose.chin.y) / pose.face_width);
            let (right, down) = (x * cosine + y * sine, y * cosine - x * sine);
            let right = if pose.is_mirrored { -right } else { right };
            let Layers { color, coverage } = self.paint(Place { x: right, y: down, unit: pose.face_width });
            ([0, 1, 2].map(|channel| (color[channel] * pose.light[channel]).min(255.0)), coverage)
        });
    }

    /// The colour at a place, from the back to the front.
    fn paint(&self, place: Place) -> Layers {
        let mut layers = Layers { color: self.skin, coverage: 0.0 };
        self.paint_hair_behind(place, &mut layers);
        let ear = Oval { x: -0.5, y: -0.64, half_width: 0.09, half_height: 0.15 };
        layers.add(self.skin.map(|value| value * 0.86), place.mirrored().in_oval(ear));
        self.paint_face(place, &mut layers);
        self.paint_eyes(place, &mut layers);
        self.paint_mouth(place, &mut layers);
        self.paint_top(place, &mut layers);
        layers
    }

    /// Strands: lighter and darker along the fall of the hair.
    fn hair_at(&self, place: Place) -> Color {
        let strand = noise::fractal_noise(self.seed, place.x * 22.0, place.y * 3.0) - 0.5;
        let light = shade(self.hair_color, SKULL.radius(place) * 0.9);
        light.map(|value| (value * (1.0 + 0.7 * strand)).clamp(0.0, 255.0))
    }

    fn paint_hair_behind(&self, place: Place, layers: &mut Layers) {
        let behind = match self.hair {
            Hair::Short => return,
            Hair::Long => Oval { x: 0.0, y: -0.5, half_width: 0.66, half_height: 0.92 },
            Hair::Bun => Oval { x: 0.3, y: -1.46, half_width: 0.24, half_height: 0.22 },
        };
        // Heads are drawn over bodies: the neck stays free.
        let beside = edge_coverage((place.x.abs() - 0.4) * place.unit).clamp(0.0, 1.0);
        let free = if self.hair == Hair::Long { beside.max(place.above(-0.4)) } else { 1.0 };
        let color = self.hair_at(place).map(|value| value * 0.82);
        layers.add(color, place.in_oval(behind) * free);
    }

    fn paint_face(&self, place: Place, layers: &mut Layers) {
        // Narrower towards the chin, lit from the upper left.
        let narrowing = 1.0 - 0.24 * ((place.y - FACE.y) / FACE.half_height).clamp(0.0, 1.0).powi(2);
        let narrowed = Place { x: place.x / narrowing, ..place };
        let side = (0.6 * (place.x + 0.16)).hypot(0.3 * (place.y + 0.95)) / 0.5;
        let mut color = shade(self.skin, side.min(1.0));
        let cheek = Oval { x: -0.28, y: -0.46, half_width: 0.15, half_height: 0.11 };
        let blush = (1.0 - cheek.radius(place.mirrored())).max(0.0) * 0.4;
        color = mix_colors(color, [206.0, 96.0, 84.0], blush);
        // The nose: its shadow to the right, and light along its ridge.
        let shadow = Oval { x: 0.055, y: -0.53, half_width: 0.1, half_height: 0.17 };
        color = mix_colors(
            color,
            self.skin.map(|value| value * 0.62),
            (1.0 - shadow.radius(place)).max(0.0) * 0.5,
        );
        let ridge = Oval { x: -0.015, y: -0.56, half_width: 0.04, half_height: 0.16 };
        let lit = self.skin.map(|value| (value * 1.16).min(255.0));
        color = mix_colors(color, lit, (1.0 - ridge.radius(place)).max(0.0) * 0.8);
        let nostril = Oval { x: -0.055, y: -0.42, half_width: 0.035, half_height: 0.02 };
        layers.add(color, narrowed.in_oval(FACE));
        layers.add(self.skin.map(|value| value * 0.4), place.mirrored().in_oval(nostril) * 0.8);
    }

    fn paint_eyes(&self, place: Place, layers: &mut Layers) {
        let eye = place.mirrored();
        let at = |half_width, half_height| Oval { x: -EYE_DISTANCE, y: EYE_LINE, half_width, half_height };
        let socket = (1.0 - at(0.17, 0.13).radius(eye)).max(0.0) * 0.45;
        layers.add(self.skin.map(|value| value * 0.7), socket * layers.coverage);
        let white = eye.in_oval(at(0.105, 0.058));
        layers.add([238.0, 236.0, 232.0], white);
        layers.add(self.eyes, eye.in_oval(at(0.052, 0.052)) * white);
        layers.add([18.0, 16.0, 18.0], eye.in_oval(at(0.026, 0.026)));
        // Both eyes have the light on the same side.
        let glint = Oval {
            x: 0.015 - EYE_DISTANCE.copysign(-place.x),
            y: EYE_LINE - 0.02,
            half_width: 0.012,
            half_height: 0.012,
        };
        layers.add([250.0; 3], place.in_oval(Oval { x: glint.x - 0.03, ..glint }));
        let lid = Oval { x: -EYE_DISTANCE, y: EYE_LINE + 0.012, half_width: 0.125, half_height: 0.082 };
        let upper = eye.in_oval(lid) * (1.0 - eye.in_oval(at(0.112, 0.06))) * eye.above(EYE_LINE - 0.005);
        layers.add(mix_colors(self.hair_color, [30.0, 22.0, 20.0], 0.6), upper * 0.9);
        // The brow: an arch, thicker inside.
        let (across, arch) =
            (eye.x + EYE_DISTANCE, EYE_LINE - 0.145 + 0.9 * (eye.x + EYE_DISTANCE + 0.02).powi(2));
        let thickness = 0.026 + 0.06 * (across + 0.14).clamp(0.0, 0.2) * 0.5;
        let inside = (thickness - (eye.y - arch).abs()).min(0.15 - across.abs());
        layers.add(self.hair_color, edge_coverage(inside * eye.unit) * 0.85);
    }

    /// Smiling, a little open.
    fn paint_mouth(&self, place: Place, layers: &mut Layers) {
        let curve = -0.235 - 0.55 * place.x.powi(2);
        let lips = Oval { x: 0.0, y: curve, half_width: 0.2, half_height: 0.062 };
        let lip = mix_colors(self.skin, [176.0, 62.0, 66.0], 0.55);
        layers.add(lip, place.in_oval(lips) * 0.9);
        let teeth = Oval { x: 0.0, y: curve - 0.004, half_width: 0.15, half_height: 0.03 };
        layers.add([236.0, 232.0, 226.0], place.in_oval(teeth));
        let under = Oval { x: 0.0, y: -0.12, half_width: 0.14, half_height: 0.04 };
        layers.add(
            self.skin.map(|value| value * 0.76),
            (1.0 - under.radius(place)).max(0.0) * 0.45 * layers.coverage,
        );
    }

    /// Hair over the forehead, and what is worn there.
    fn paint_top(&self, place: Place, layers: &mut Layers) {
        let fringe = HAIRLINE + 0.34 * place.x.powi(2) - 0.1 * place.x;
        let skull = place.in_oval(SKULL);
        // In front of the ears hair comes further down.
        let temple = edge_coverage((place.x.abs() - 0.41) * place.unit) * place.above(-0.72);
        let hair = place.above(fringe).max(temple.clamp(0.0, 1.0));
        layers.add(self.hair_at(place), skull * hair);
        let bowed = 0.22 * place.x.powi(2);
        match self.headwear {
            Headwear::None => {}
            Headwear::Band(color) => {
                let band = place.above(-1.0 - bowed) * (1.0 - place.above(-1.16 - bowed));
                layers.add(shade(color, place.x.abs() / 0.55), skull * band);
            }
            Headwear::Cap(color) => {
                let dome = Oval { half_width: 0.55, half_height: 0.64, ..SKULL };
                layers
                    .add(shade(color, dome.radius(place)), place.in_oval(dome) * place.above(-1.02 - bowed));
                let peak = Oval { x: 0.0, y: -1.0, half_width: 0.46, half_height: 0.12 };
                layers.add(color.map(|value| value * 0.72), place.in_oval(peak));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canvas::Point;

    const HEAD: DrawnHead = DrawnHead {
        skin: [222.0, 172.0, 140.0],
        hair_color: [70.0, 46.0, 30.0],
        hair: Hair::Long,
        eyes: [84.0, 110.0, 140.0],
        headwear: Headwear::Band([200.0, 30.0, 40.0]),
        seed: 1,
    };

    #[test]
    fn a_head_has_a_face_where_the_pose_says() {
        let mut canvas = Canvas::new(300, 300);
        canvas.fill(|_, _| [0.0, 0.0, 255.0]);
        let pose = Pose {
            chin: Point::new(150.0, 220.0),
            face_width: 100.0,
            rotation: 0.0,
            is_mirrored: false,
            light: [1.0; 3],
        };
        Head::Drawn(&HEAD).draw(&mut canvas, pose);
        let picture = canvas.to_image(1, 0.0);
        let pixel = |x, y| picture.get_pixel(x, y).0;
        assert_eq!(pixel(5, 5), [0, 0, 255], "beside the head nothing changes");
        let [red, green, blue] = pixel(125, 175);
        assert!(red > green && green > blue, "a cheek has the colour of skin: {red} {green} {blue}");
        let [red, green, _] = pixel(150, 112);
        assert!(red > 2 * green, "the band is over the forehead: {red} {green}");
        assert!(pixel(130, 146).iter().all(|value| *value < 120), "an eye is dark in its middle");
    }
}
