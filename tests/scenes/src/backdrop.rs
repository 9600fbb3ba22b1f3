//! The background of a photo: sky, trees, spectators behind a barrier, a road.

use crate::canvas::{Bounds, Canvas, Color, LimbEnd, Point, mix_colors};
use crate::noise::{self, Rng};

/// Colours of the sky: at the top of the picture and at the horizon.
const SKIES: [(Color, Color); 4] = [
    ([96.0, 148.0, 214.0], [206.0, 222.0, 238.0]),
    ([150.0, 160.0, 172.0], [214.0, 216.0, 218.0]),
    ([118.0, 150.0, 196.0], [244.0, 214.0, 178.0]),
    ([70.0, 128.0, 206.0], [178.0, 208.0, 236.0]),
];

/// Colours of spectators' clothes and of the banner on the barrier.
const CLOTHES: [Color; 7] = [
    [182.0, 52.0, 48.0],
    [44.0, 74.0, 140.0],
    [216.0, 210.0, 196.0],
    [52.0, 60.0, 64.0],
    [206.0, 160.0, 52.0],
    [64.0, 126.0, 86.0],
    [128.0, 76.0, 132.0],
];

/// Draws the background over the whole canvas. `horizon` is the fraction of the height that is above the road, 0 to 1.
pub fn draw_backdrop(canvas: &mut Canvas, horizon: f32, seed: u64) {
    let mut rng = Rng::new(seed);
    let sky = rng.choose(&SKIES);
    let unit = canvas.height() / 40.0;
    let horizon = horizon * canvas.height();
    let leaves = [52.0 + rng.uniform(0.0, 50.0), 92.0 + rng.uniform(-10.0, 20.0), 48.0];
    let vanishing = canvas.width() * rng.uniform(0.3, 0.7);
    canvas.fill(|x, y| {
        let crown = horizon - unit * (5.0 + 6.0 * noise::fractal_noise(seed, x / (unit * 8.0), 0.5));
        if y > horizon {
            road_color(seed, [x, y], [vanishing, horizon], unit)
        } else if y > crown {
            let light = noise::fractal_noise(seed + 9, x / unit, y / unit)
                + 0.3 * noise::smooth_noise(seed, x / 9.0, y / 9.0);
            mix_colors([26.0, 42.0, 28.0], leaves, light)
        } else {
            let cloud = noise::fractal_noise(seed + 20, x / (unit * 9.0), y / (unit * 4.0));
            mix_colors(mix_colors(sky.0, sky.1, y / horizon), [246.0, 246.0, 248.0], 2.5 * (cloud - 0.55))
        }
    });
    draw_crowd(canvas, horizon, &mut rng);
}

/// Asphalt, coarser and lighter near the camera, with white lane lines that meet at the vanishing point.
fn road_color(seed: u64, [x, y]: [f32; 2], [vanishing, horizon]: [f32; 2], unit: f32) -> Color {
    let near = (y - horizon) / (unit * 20.0) + 0.04;
    let size = 2.0 + 14.0 * near;
    let gravel = noise::fractal_noise(seed + 40, x / size, y / size) - 0.5;
    let light = 92.0 + 24.0 * near.min(1.5) + 26.0 * gravel;
    let lane = ((x - vanishing) / (near * unit * 26.0)).abs();
    let line = 1.0 - ((lane - 0.9).abs() / 0.035).min(1.0);
    mix_colors([light, light, light + 4.0], [224.0, 222.0, 214.0], line)
}

/// Draws small spectators without faces, and the barrier with a banner in front of them.
fn draw_crowd(canvas: &mut Canvas, horizon: f32, rng: &mut Rng) {
    let unit = canvas.height() / 40.0;
    let mut x = -unit;
    while x < canvas.width() + unit {
        let size = unit * rng.uniform(0.75, 1.05);
        let (shirt, head) = (rng.choose(&CLOTHES), horizon - size * rng.uniform(2.0, 2.7));
        let skin = mix_colors([222.0, 182.0, 156.0], [112.0, 76.0, 56.0], rng.uniform(0.0, 1.0));
        let end = |y: f32, radius: f32| LimbEnd { centre: Point::new(x, y), radius: size * radius };
        canvas.draw_limb([end(horizon - size, 0.62), end(horizon + size, 0.7)], shirt);
        canvas.draw_limb([end(head, 0.34), end(head + size * 0.2, 0.3)], skin);
        canvas.draw_limb([end(head - size * 0.18, 0.36), end(head - size * 0.2, 0.3)], [48.0; 3]);
        x += size * rng.uniform(1.1, 1.9);
    }
    let banner = rng.choose(&CLOTHES);
    let sides = [0.0, horizon - unit * 0.2, canvas.width(), horizon + unit * 1.5];
    canvas.blend(Bounds { sides }, |x, y| {
        let along = (x / (unit * 6.0)).fract();
        let post = if along < 0.02 { 0.5 } else { 1.0 };
        let fold = 0.9 + 0.2 * noise::smooth_noise(3, x / unit, y / (unit * 3.0));
        (banner.map(|value| value * post * fold), 1.0)
    });
}
