//! Letterboxing and downscaling.

use photofinish_kernels::batch::downscale;
use photofinish_kernels::batch::letterbox::{Placement, place_all};
use photofinish_kernels::device::Device;
use photofinish_kernels::image::frame::{Picture, Size};
use photofinish_kernels::image::tensor::{Channels, Normalisation, Tensor};

use crate::devices::{self, Noise};

const NORMALISATION: Normalisation = Normalisation {
    channels: Channels::Bgr,
    mean: [127.5, 120.0, 3.0],
    scale: [2.0 / 255.0, 0.5, 1.0],
    padding: -1.0,
};

fn size(width: u32, height: u32) -> Size {
    Size { width, height }
}

fn placed(device: &Device, placements: &[Placement<'_>], canvas: Size) -> Vec<f32> {
    let mut tensor = Tensor::default();
    place_all(device, placements, canvas, &NORMALISATION, &mut tensor).expect("no error");
    assert_eq!(tensor.shape()[0], placements.len());
    tensor.data().to_vec()
}

fn compare_placements(placements: &[Placement<'_>], canvas: Size, small: usize) {
    let expected = placed(&Device::Cpu, placements, canvas);
    devices::for_each(small, |device| {
        let found = placed(device, placements, canvas);
        let different = found.iter().zip(&expected).filter(|(a, b)| a != b).count();
        assert_eq!(different, 0, "numbers of {} that differ, on {device:?}", expected.len());
    });
}

#[test]
fn photos_of_any_sizes_are_letterboxed_as_on_the_processor() {
    let mut noise = Noise::new(1);
    let photos: Vec<Picture> =
        [(1, 1), (3, 2), (640, 427), (1, 500), (500, 1), (1607, 1069), (160, 97), (41, 160)]
            .map(|(width, height)| noise.picture(width, height))
            .into();
    let place = |photo| {
        let window = Picture::frame(photo).as_window();
        Placement { window, size: window.size().fit_within(160), skipped_rows: 0 }
    };
    let mut placements: Vec<Placement<'_>> = photos.iter().map(place).collect();
    // Enlarged, and squeezed in one direction.
    for target in [size(150, 133), size(7, 160), size(160, 3)] {
        placements.push(Placement { size: target, ..placements[2] });
        placements.push(Placement { size: target, ..placements[1] });
    }
    compare_placements(&placements, size(160, 160), 320_000);
    compare_placements(&placements[..1], size(1, 1), 1024);
    compare_placements(&[], size(160, 160), 1024);
}

#[test]
fn torsos_of_several_photos_are_placed_on_canvases_as_on_the_processor() {
    let mut noise = Noise::new(2);
    let photos = [noise.picture(700, 467), noise.picture(333, 501)];
    let windows = [
        (0, 10, 20, 90, 140),
        (0, 610, 300, 90, 167),
        (1, 0, 0, 30, 45),
        (1, 100, 200, 233, 301),
        (0, 5, 5, 64, 96),
    ];
    let placements: Vec<Placement<'_>> = windows
        .iter()
        .flat_map(|&(photo, left, top, width, height)| {
            let window = photos[photo].frame().window(left, top, size(width, height)).expect("no error");
            let zoomed =
                |zoom: f32| size((width as f32 * zoom).round() as u32, (height as f32 * zoom).round() as u32);
            [(1.7, 0), (0.6, 0), (0.6, 32), (1.7, 96), (1.0, 0), (1.0, 17)]
                .map(|(zoom, skipped_rows)| Placement { window, size: zoomed(zoom), skipped_rows })
        })
        .collect();
    compare_placements(&placements, size(64, 96), 100_000);
}

#[test]
fn photos_are_downscaled_as_on_the_processor() {
    let mut noise = Noise::new(3);
    let cases = [
        ((1, 1), (1, 1)),
        ((5, 3), (1, 1)),
        ((640, 427), (320, 214)),
        ((1607, 1069), (400, 266)),
        ((33, 900), (7, 200)),
        ((200, 100), (200, 50)),
        ((200, 100), (77, 100)),
        ((64, 64), (64, 64)),
        ((20, 30), (61, 90)),
    ];
    let photos: Vec<(Picture, Size)> =
        cases.iter().map(|&((w, h), (to_w, to_h))| (noise.picture(w, h), size(to_w, to_h))).collect();
    let photos: Vec<(_, Size)> = photos.iter().map(|(photo, size)| (photo.frame(), *size)).collect();
    let expected = downscale::resize_all(&Device::Cpu, &photos).expect("no error");
    devices::for_each(150_000, |device| {
        let found = downscale::resize_all(device, &photos).expect("no error");
        for ((found, expected), case) in found.iter().zip(&expected).zip(&cases) {
            let worst = found
                .frame()
                .pixels()
                .iter()
                .zip(expected.frame().pixels())
                .map(|(a, b)| a.abs_diff(*b))
                .max();
            assert_eq!(worst, Some(0), "{case:?}");
        }
        assert!(downscale::resize_all(device, &[]).expect("no error").is_empty());
    });
}

#[test]
fn a_photo_larger_than_a_buffer_is_split() {
    // More than the 128 MiB of a buffer of Mesa's software Vulkan.
    let side = 6_720;
    let photo =
        Picture::new((0..side * side * 3).map(|i: u32| (i >> 9 ^ i >> 3) as u8).collect(), side, side)
            .expect("no error");
    let window = photo.frame().as_window();
    let placements = [Placement { window, size: size(96, 96), skipped_rows: 0 }];
    let expected = placed(&Device::Cpu, &placements, size(96, 96));
    for gpu in devices::list() {
        let found = placed(&Device::Gpu(std::sync::Arc::clone(gpu)), &placements, size(96, 96));
        assert!(found == expected, "{}", gpu.name());
    }
}
