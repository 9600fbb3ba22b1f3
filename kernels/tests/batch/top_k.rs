//! Nearest rows.

use photofinish_kernels::batch::top_k::{Album, Components, Found, Vectors, search};
use photofinish_kernels::device::Device;

use crate::devices::{self, Noise};

struct Numbers {
    bytes: Vec<i8>,
    halves: Vec<u16>,
    factors: Vec<f32>,
}

fn numbers(count: usize, dimension: usize, seed: u32) -> Numbers {
    let mut noise = Noise::new(seed);
    let bytes: Vec<i8> = (0..count * dimension).map(|_| (noise.word() % 255) as i8).collect();
    // Halves from 2^-5 to 2^-3, of either sign.
    let half = |_| ((noise.word() & 0x83ff) | (10 + noise.word() % 2) << 10) as u16;
    let halves = (0..count * dimension).map(half).collect();
    let mut noise = Noise::new(seed + 1);
    // Few different factors: equal scores occur.
    let factors = (0..count).map(|_| (1 + noise.word() % 3) as f32 / 2048.0).collect();
    Numbers { bytes, halves, factors }
}

fn compare(rows: usize, dimension: usize, probes: usize, k: usize) {
    let (rows, probes) = (numbers(rows, dimension, 9), numbers(probes, dimension, 10));
    for is_half in [false, true] {
        let vectors = |numbers: &Numbers, device: &Device| -> Vec<Vec<Found>> {
            let album = Vectors { components: rows.components(is_half), factors: &rows.factors };
            let album = Album::new(device, &album, dimension).expect("no error");
            assert_eq!(album.len(), rows.factors.len());
            search(&album, &Vectors { components: numbers.components(is_half), factors: &numbers.factors }, k)
                .expect("no error")
        };
        let expected = vectors(&probes, &Device::Cpu);
        devices::for_each(1 << 17, |device| {
            let found = vectors(&probes, device);
            assert!(found == expected, "{} rows, halves: {is_half}, on {device:?}", rows.factors.len());
        });
    }
}

impl Numbers {
    fn components(&self, is_half: bool) -> Components<'_> {
        if is_half { Components::F16(&self.halves) } else { Components::I8(&self.bytes) }
    }
}

#[test]
fn the_nearest_rows_are_those_of_the_processor() {
    compare(1, 3, 1, 5);
    compare(1_023, 128, 5, 10);
    compare(3_000, 256, 9, 32);
    compare(0, 128, 2, 4);
    compare(40, 7, 0, 4);
    compare(40, 7, 2, 0);
}

#[test]
fn many_probes_search_many_rows_at_once() {
    compare(9_001, 64, 33, 3);
}
