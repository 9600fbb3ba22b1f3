//! Paints what the fake networks read.

use image::RgbImage;

pub(super) fn paint_face(picture: &mut RgbImage, person: u8, [left, top, side]: [u32; 3]) {
    for y in top..top + side {
        for x in left..left + side {
            picture.put_pixel(x, y, image::Rgb([person, 0, 0]));
        }
    }
}

pub(super) fn paint_bib(picture: &mut RgbImage, text: &str, [left, top]: [u32; 2]) {
    picture.put_pixel(left, top, image::Rgb([text.len() as u8, 0, 0]));
}
