//! Pictures drawn here and encoded by libjpeg-turbo.

use turbojpeg::{Compressor, Image, PixelFormat, Subsamp};

/// The samplings that are decoded here.
pub const SAMPLINGS: [Subsamp; 4] = [Subsamp::None, Subsamp::Sub2x1, Subsamp::Sub2x2, Subsamp::Gray];

/// Waves and noise: blocks that are flat, sparse and full.
pub fn draw(width: usize, height: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let mut pixels = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        for x in 0..width {
            for channel in 0..3 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let noise = ((state >> 24) as usize * (x / 16 % 5)) >> 3;
                let wave = (x * (channel + 1) + y * 2) / 3 % 200;
                pixels.push((wave + noise * usize::from(y / 24 % 2 == 0)).min(255) as u8);
            }
        }
    }
    pixels
}

/// Encodes a drawing with Huffman tables of its own or the standard's.
pub fn encode(
    (width, height): (usize, usize),
    quality: i32,
    sampling: Subsamp,
    has_own_tables: bool,
) -> Vec<u8> {
    let pixels = draw(width, height);
    let mut compressor = Compressor::new().expect("libjpeg-turbo encodes");
    compressor.set_quality(quality).expect("libjpeg-turbo encodes");
    compressor.set_subsamp(sampling).expect("libjpeg-turbo encodes");
    compressor.set_optimize(has_own_tables).expect("libjpeg-turbo encodes");
    let image = Image { pixels: &pixels[..], width, pitch: width * 3, height, format: PixelFormat::RGB };
    compressor.compress_to_vec(image).expect("libjpeg-turbo encodes")
}
