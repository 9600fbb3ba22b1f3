//! Tests of the peak memory that a plan predicts, and of files that are rejected because of it.

use super::parameters::with_parameters;
use super::*;

const GIANT: u32 = 14_142;
const GIANT_AREA: usize = 14_142 * 14_142;

/// The predicted peak memory of decoding, or why the file is rejected.
fn peak_bytes(file: &[u8], long_side: u32) -> Result<usize, FailureReason> {
    let mut decoder = Decoder::new(LIMITS, BufferPool::default()).unwrap();
    let plan = decoder.plan(file, |_| long_side);
    plan.map(|plan| plan.peak_bytes).map_err(|poison| poison.reason)
}

/// A PNG of this image's pixel format that claims a size of `width` x `height`.
fn png_claiming(image: &DynamicImage, width: u32, height: u32) -> Vec<u8> {
    let mut file = encode(image, ImageFormat::Png);
    file[16..20].copy_from_slice(&width.to_be_bytes());
    file[20..24].copy_from_slice(&height.to_be_bytes());
    let sum = crc32(&file[12..29]);
    file[29..33].copy_from_slice(&sum.to_be_bytes());
    file
}

fn crc32(bytes: &[u8]) -> u32 {
    let shifted = |sum: u32| (sum >> 1) ^ (0xedb8_8320 * (sum & 1));
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), |sum, _| shifted(sum)))
}

/// Changes a JPEG to claim a size of [`GIANT`] x [`GIANT`].
fn jpeg_claiming_a_giant(mut file: Vec<u8>) -> Vec<u8> {
    let frame = find_marker(&file, 0xc0).or_else(|| find_marker(&file, 0xc2)).unwrap();
    let [high, low] = (GIANT as u16).to_be_bytes();
    file[frame + 5..frame + 9].copy_from_slice(&[high, low, high, low]);
    file
}

pub(super) fn find_marker(file: &[u8], marker: u8) -> Option<usize> {
    file.windows(2).position(|pair| pair == [0xff, marker])
}

fn cmyk_jpeg(scene: &RgbImage, set: impl FnOnce(&mut Compressor)) -> Vec<u8> {
    let mut compressor = Compressor::new().unwrap();
    set(&mut compressor);
    let ink: Vec<u8> = scene.pixels().flat_map(|pixel| [pixel[0], pixel[1], pixel[2], 255]).collect();
    let (width, height) = (scene.width() as usize, scene.height() as usize);
    let image = Image { pixels: ink.as_slice(), width, pitch: width * 4, height, format: PixelFormat::CMYK };
    compressor.compress_to_vec(image).unwrap()
}

fn set_progressive(compressor: &mut Compressor) {
    compressor.set_progressive(true).unwrap();
}

#[test]
fn a_side_beyond_what_a_jpeg_can_have_is_refused() {
    let grey = DynamicImage::ImageLuma8(DynamicImage::ImageRgb8(scene(8, 8)).to_luma8());
    assert_eq!(peak_bytes(&png_claiming(&grey, 67_000_000, 1), 2048), Err(FailureReason::TooManyPixels));
    assert_eq!(peak_bytes(&png_claiming(&grey, 1, 65_536), 2048), Err(FailureReason::TooManyPixels));
    assert_eq!(peak_bytes(&png_claiming(&grey, 65_535, 3), 2048), Ok(65_535 * 3 * 4));
}

#[test]
fn a_file_that_needs_too_many_bytes_per_pixel_is_refused() {
    let rgb = DynamicImage::ImageRgb8(scene(8, 8));
    let rgba16 = DynamicImage::ImageRgba16(rgb.to_rgba16());
    assert_eq!(peak_bytes(&png_claiming(&rgba16, GIANT, GIANT), 2048), Err(FailureReason::TooManyPixels));
    assert_eq!(peak_bytes(&png_claiming(&rgba16, 12_000, 12_000), 2048), Ok(12_000 * 12_000 * 11));
    let ink = jpeg_claiming_a_giant(cmyk_jpeg(&scene(16, 16), set_progressive));
    assert_eq!(peak_bytes(&ink, GIANT), Err(FailureReason::TooManyPixels));
}

#[test]
fn every_ordinary_photo_is_read_up_to_the_limit_of_pixels() {
    let rgb = DynamicImage::ImageRgb8(scene(8, 8));
    let png = |image: &DynamicImage| peak_bytes(&png_claiming(image, GIANT, GIANT), 2048);
    assert_eq!(png(&rgb), Ok(GIANT_AREA * 3));
    assert_eq!(png(&DynamicImage::ImageRgba8(rgb.to_rgba8())), Ok(GIANT_AREA * 7));
    assert_eq!(png(&DynamicImage::ImageRgb16(rgb.to_rgb16())), Ok(GIANT_AREA * 9));
    let plain = jpeg_claiming_a_giant(jpeg(&scene(16, 16), |_| {}));
    assert_eq!(peak_bytes(&plain, GIANT), Ok(GIANT_AREA * 3));
    let in_scans = jpeg_claiming_a_giant(jpeg(&scene(16, 16), set_progressive));
    assert_eq!(peak_bytes(&in_scans, GIANT), Ok(GIANT_AREA * 9));
    let ink = jpeg_claiming_a_giant(cmyk_jpeg(&scene(16, 16), |_| {}));
    assert_eq!(peak_bytes(&ink, GIANT), Ok(GIANT_AREA * 4));
    let ink_in_scans = jpeg_claiming_a_giant(cmyk_jpeg(&scene(16, 16), set_progressive));
    assert!(peak_bytes(&ink_in_scans, 2048).is_ok_and(|bytes| bytes < GIANT_AREA * 9));
}

#[test]
fn cmyk_is_decoded_into_a_buffer_of_four_bytes_per_pixel() {
    let file = cmyk_jpeg(&scene(320, 200), |_| {});
    let pool = BufferPool::default();
    let mut decoder = Decoder::new(LIMITS, pool.clone()).unwrap();
    let plan = decoder.plan(&file, |_| 320).unwrap();
    assert_eq!((plan.buffer_bytes, plan.peak_bytes), (320 * 200 * 4, 320 * 200 * 4));
    drop(decoder.decode(&file, &plan).unwrap());
    assert_eq!(pool.idle_bytes(), plan.buffer_bytes);
}

/// A JPEG whose three components are in separate scans, assembled from three grey ones.
fn in_three_scans(planes: [&RgbImage; 3]) -> Vec<u8> {
    let files = planes.map(|plane| jpeg(plane, |compressor| compressor.set_subsamp(Subsamp::Gray).unwrap()));
    let (frame, scan) = (find_marker(&files[0], 0xc0).unwrap(), find_marker(&files[0], 0xda).unwrap());
    let mut file = files[0][..frame].to_vec();
    file.extend([0xff, 0xc0, 0, 17]);
    // Bits per sample, height, width.
    file.extend(&files[0][frame + 4..frame + 9]);
    file.extend([3, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0]);
    file.extend(&files[0][frame + 13..scan]);
    for (number, part) in (1_u8..).zip(&files) {
        let scan = find_marker(part, 0xda).unwrap();
        file.extend([0xff, 0xda, 0, 8, 1, number, 0, 0, 63, 0]);
        file.extend(&part[scan + 10..part.len() - 2]);
    }
    file.extend([0xff, 0xd9]);
    file
}

/// A grey picture, and a JPEG of it with three components in separate scans.
pub(super) fn grey_in_three_scans(width: u32, height: u32) -> (RgbImage, Vec<u8>) {
    let grey = DynamicImage::ImageLuma8(DynamicImage::ImageRgb8(scene(width, height)).to_luma8()).to_rgb8();
    let no_colour = RgbImage::from_pixel(width, height, image::Rgb([128; 3]));
    let file = in_three_scans([&grey, &no_colour, &no_colour]);
    (grey, file)
}

#[test]
fn a_jpeg_whose_colours_come_one_after_the_other_is_counted_with_its_coefficients() {
    let (grey, file) = grey_in_three_scans(320, 200);
    // And with a copy of the file, which libjpeg-turbo is given if a scan has odd parameters.
    assert_eq!(peak_bytes(&file, 320), Ok(320 * 200 * (3 + 6) + file.len()));
    assert_eq!(peak_bytes(&jpeg(&grey, set_progressive), 320), Ok(320 * 200 * (3 + 6)));
    assert_eq!(peak_bytes(&jpeg(&grey, |_| {}), 320), Ok(320 * 200 * 3));
    let difference = mean_difference(decode(&file, 320).unwrap().frame().pixels(), grey.as_raw());
    assert!(difference < 3.0, "{difference}");
}

#[test]
fn a_jpeg_whose_scan_has_odd_parameters_is_counted_with_a_copy_of_the_file() {
    let file = with_parameters(&jpeg(&scene(320, 200), |_| {}), [0, 0, 0]);
    assert_eq!(peak_bytes(&file, 320), Ok(320 * 200 * 3 + file.len()));
}

#[test]
fn a_jpeg_of_an_odd_revision_is_counted_with_its_coefficients() {
    let (_, in_colours) = grey_in_three_scans(320, 200);
    for mut file in [in_colours, jpeg(&scene(320, 200), set_progressive)] {
        assert_eq!(&file[6..10], b"JFIF");
        file[11] = 2;
        assert_eq!(peak_bytes(&file, 320), Ok(320 * 200 * (3 + 6) + file.len()));
    }
    let mut plain = jpeg(&scene(320, 200), |_| {});
    plain[11] = 2;
    assert_eq!(peak_bytes(&plain, 320), Ok(320 * 200 * 3 + plain.len()));
    assert!(decode(&plain, 320).is_ok());
}

fn webp_chunk(name: &[u8; 4], payload: &[u8]) -> Vec<u8> {
    let mut chunk = name.to_vec();
    chunk.extend((payload.len() as u32).to_le_bytes());
    chunk.extend(payload);
    chunk.resize(chunk.len().next_multiple_of(2), 0);
    chunk
}

/// Width and height as WebP stores them: 24 bits each, one less.
fn webp_sides(width: u32, height: u32) -> Vec<u8> {
    [(width - 1).to_le_bytes(), (height - 1).to_le_bytes()]
        .iter()
        .flat_map(|side| side[..3].to_vec())
        .collect()
}

/// An extended WebP: with a canvas.
fn webp(flags: u8, (width, height): (u32, u32), chunks: &[Vec<u8>]) -> Vec<u8> {
    let canvas = webp_chunk(b"VP8X", &[vec![flags, 0, 0, 0], webp_sides(width, height)].concat());
    let body = [b"WEBP".to_vec(), canvas, chunks.concat()].concat();
    let mut file = b"RIFF".to_vec();
    file.extend((body.len() as u32).to_le_bytes());
    file.extend(body);
    file
}

/// An animated WebP of one picture, which covers the canvas.
fn animation((width, height): (u32, u32), chunks: &[Vec<u8>]) -> Vec<u8> {
    // At the top left corner, of no duration, not blended.
    let frame = [vec![0; 6], webp_sides(width, height), vec![0, 0, 0, 2], chunks.concat()].concat();
    webp(0b10, (width, height), &[webp_chunk(b"ANIM", &[0; 6]), webp_chunk(b"ANMF", &frame)])
}

/// A chunk with the beginning of a lossy picture.
fn lossy_chunk(name: &[u8; 4], width: u16, height: u16) -> Vec<u8> {
    let [[w0, w1], [h0, h1]] = [width.to_le_bytes(), height.to_le_bytes()];
    webp_chunk(name, &[0x10, 0, 0, 0x9d, 1, 0x2a, w0, w1, h0, h1, 0, 0, 0, 0])
}

#[test]
fn a_webp_whose_picture_is_larger_than_its_frame_is_corrupt_before_it_is_decoded() {
    let transparency = || webp_chunk(b"ALPH", &[0; 4]);
    for side in [65, 16_383] {
        let files = [
            webp(0, (64, 64), &[lossy_chunk(b"VP8 ", side, side)]),
            animation((64, 64), &[lossy_chunk(b"VP8 ", side, side)]),
            animation((64, 64), &[transparency(), lossy_chunk(b"VP8 ", side, side)]),
            animation((64, 64), &[transparency(), lossy_chunk(b"VP8L", side, side)]),
        ];
        for (number, file) in files.iter().enumerate() {
            assert_eq!(
                peak_bytes(file, 64),
                Err(FailureReason::CorruptImage),
                "file {number}, {side} pixels"
            );
        }
    }
    assert_eq!(peak_bytes(&webp(0, (64, 64), &[lossy_chunk(b"VP8 ", 64, 64)]), 64), Ok(64 * 64 * 8));
    assert_eq!(peak_bytes(&animation((64, 64), &[lossy_chunk(b"VP8 ", 64, 64)]), 64), Ok(64 * 64 * 15));
}

#[test]
fn a_canvas_that_claims_too_many_pixels_is_refused() {
    let file = webp(0, (70_000, 2), &[lossy_chunk(b"VP8 ", 64, 64)]);
    assert_eq!(peak_bytes(&file, 64), Err(FailureReason::TooManyPixels));
    let file = webp(0, (60_000, 60_000), &[lossy_chunk(b"VP8 ", 64, 64)]);
    assert_eq!(peak_bytes(&file, 64), Err(FailureReason::TooManyPixels));
}

#[test]
fn webp_is_read_plain_on_a_canvas_transparent_and_moving() {
    let scene = scene(96, 64);
    let plain = encode(&DynamicImage::ImageRgb8(scene.clone()), ImageFormat::WebP);
    let picture = plain[12..].to_vec();
    assert_eq!(&picture[..4], b"VP8L");
    let see_through = encode(
        &DynamicImage::ImageRgba8(DynamicImage::ImageRgb8(scene.clone()).to_rgba8()),
        ImageFormat::WebP,
    );
    let area = 96 * 64;
    for (name, file, bytes) in [
        ("plain", plain, area * 8),
        ("on a canvas", webp(0, (96, 64), std::slice::from_ref(&picture)), area * 8),
        ("transparent", see_through, area * 15),
        ("moving", animation((96, 64), &[picture]), area * 15),
    ] {
        assert_eq!(peak_bytes(&file, 96), Ok(bytes), "{name}");
        assert_eq!(decode(&file, 96).unwrap().frame().pixels(), scene.as_raw().as_slice(), "{name}");
    }
}
