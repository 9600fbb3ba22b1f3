//! Alignment of faces and rectification of texts.

use photofinish_kernels::batch::warp::{Face, Text, align_all, rectify_all};
use photofinish_kernels::device::Device;
use photofinish_kernels::geometry::{Point, Quad};
use photofinish_kernels::image::frame::{Picture, Size};
use photofinish_kernels::image::tensor::{Channels, Normalisation, Tensor};
use photofinish_kernels::warp::align::Template;

use crate::devices::{self, Noise};

const NORMALISATION: Normalisation =
    Normalisation { channels: Channels::Rgb, mean: [127.5; 3], scale: [2.0 / 255.0; 3], padding: 0.0 };

fn compare(expected: &Tensor, found: &Tensor, device: &Device) {
    assert_eq!(expected.shape(), found.shape());
    let different = found.data().iter().zip(expected.data()).filter(|(a, b)| a != b).count();
    assert_eq!(different, 0, "numbers of {} that differ, on {device:?}", expected.data().len());
}

fn photos() -> Vec<Picture> {
    let mut noise = Noise::new(4);
    [(1, 1), (211, 97), (640, 427), (3, 400)].map(|(width, height)| noise.picture(width, height)).into()
}

#[test]
fn faces_of_many_photos_are_aligned_as_on_the_processor() {
    let points = [(38.3, 51.7), (73.5, 51.5), (56.0, 71.7), (41.5, 92.4), (70.7, 92.2)];
    let template = Template { points: points.map(|(x, y)| Point { x, y }), side: 112 };
    let photos = photos();
    let mut noise = Noise::new(5);
    let mut faces = Vec::new();
    for photo in photos.iter().cycle().take(12) {
        let (zoom, angle) = (noise.number(0.2, 3.0), noise.number(-1.0, 1.0));
        let (left, top) = (noise.number(-40.0, 300.0), noise.number(-40.0, 300.0));
        let turned = points.map(|(x, y)| {
            let (sin, cos) = angle.sin_cos();
            let jitter = noise.number(-1.0, 1.0);
            Point { x: (x * cos - y * sin) * zoom + left + jitter, y: (x * sin + y * cos) * zoom + top }
        });
        faces.push(Face { frame: photo.frame(), landmarks: turned });
    }
    // Coinciding landmarks: black.
    faces.push(Face { frame: photos[2].frame(), landmarks: [Point { x: 5.0, y: 5.0 }; 5] });
    for faces in [&faces[..], &[]] {
        let mut expected = Tensor::default();
        align_all(&Device::Cpu, faces, &template, &NORMALISATION, &mut expected).expect("no error");
        devices::for_each(900_000, |device| {
            let mut found = Tensor::default();
            align_all(device, faces, &template, &NORMALISATION, &mut found).expect("no error");
            compare(&expected, &found, device);
        });
    }
}

#[test]
fn texts_in_perspective_are_rectified_as_on_the_processor() {
    let photos = photos();
    let quad = |corners: [(f32, f32); 4]| Quad(corners.map(|(x, y)| Point { x, y }));
    let quads = [
        quad([(10.0, 20.0), (110.0, 30.0), (90.0, 80.0), (5.0, 60.0)]),
        quad([(20.0, 5.0), (120.0, 5.0), (120.0, 53.0), (20.0, 53.0)]),
        quad([(0.0, 0.0), (192.0, 0.0), (192.0, 400.0), (0.0, 400.0)]),
        quad([(-50.0, 300.0), (600.0, 250.0), (700.0, 420.0), (-20.0, 440.0)]),
        quad([(3.0, 3.0), (3.0, 3.0), (3.0, 3.0), (3.0, 3.0)]),
    ];
    let texts: Vec<Text<'_>> =
        photos.iter().flat_map(|photo| quads.map(|quad| Text { frame: photo.frame(), quad })).collect();
    let strip = Size { width: 160, height: 48 };
    for texts in [&texts[..], &[]] {
        let mut expected = Tensor::default();
        rectify_all(&Device::Cpu, texts, strip, &NORMALISATION, &mut expected).expect("no error");
        devices::for_each(900_000, |device| {
            let mut found = Tensor::default();
            rectify_all(device, texts, strip, &NORMALISATION, &mut found).expect("no error");
            compare(&expected, &found, device);
        });
    }
}
