//! The still picture of a HEIC file: what is shown of its canvas, how it is turned, and how it becomes RGB.

use std::panic::catch_unwind;

use heifer::heifer_isobmff::boxes::Property;
use heifer::heifer_isobmff::{HeifFile, ItemId};
use photofinish_kernels::image::frame::Size;
use photofinish_kernels::image::orient::Orientation;

use super::HeicHeader;
use super::bands::{BAND_BYTES_PER_COLUMN, for_each_row};
use super::canvas::{Canvas, Tile, find_property};
use super::container::{self, corrupt, to_poison, unsupported};
use crate::engine::fault::Poison;
use crate::image::raster::blend_on_white;

/// The names of the items that say how transparent a picture is.
const ALPHA_NAMES: [&str; 2] = ["urn:mpeg:hevc:2015:auxid:1", "urn:mpeg:mpegB:cicp:systems:auxiliary:alpha"];

/// Reads the header: everything that decides how much is decoded.
///
/// # Errors
/// When it is damaged, above the limits of this format, or of an unsupported kind.
pub(crate) fn read_header(file: &[u8]) -> Result<HeicHeader, Poison> {
    Ok(StillPicture::read(file)?.header())
}

/// Decodes as row-major RGB into `out` and sets its length. The caller has checked the header against the limits.
///
/// # Errors
/// When the file is damaged.
pub(crate) fn decode(file: &[u8], header: &HeicHeader, out: &mut Vec<u8>) -> Result<(), Poison> {
    let picture = StillPicture::read(file)?;
    if picture.window.size != header.size {
        return Err(corrupt("the header changed between two reads"));
    }
    out.resize(header.size.area() * 3, 0);
    picture.decode(out)
}

/// Reads the transform that turns the stored pixels upright; `None` if the file is not HEIC, or has no picture. A file may
/// have EXIF data with an orientation too: readers of HEIC ignore it.
pub(crate) fn read_orientation(file: &[u8]) -> Option<Orientation> {
    if file.get(4..8)? != b"ftyp" {
        return None;
    }
    // Malicious data is judged where the picture is decoded.
    catch_unwind(|| {
        let file = container::open(file).ok()?;
        Some(Transforms::read(&file, file.primary_id).ok()?.orientation)
    })
    .ok()
    .flatten()
}

/// The primary picture of a file.
struct StillPicture<'a> {
    file: HeifFile<'a>,
    pixels: Canvas,
    alpha: Option<Canvas>,
    window: Window,
}

/// What is shown of a canvas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    left: u32,
    top: u32,
    size: Size,
}

impl<'a> StillPicture<'a> {
    fn read(file: &'a [u8]) -> Result<Self, Poison> {
        let file_bytes = file.len();
        let file = container::open(file)?;
        let item = file.primary_id;
        let pixels = Canvas::read(&file, item, file_bytes)?;
        let window = Transforms::read(&file, item)?.window(pixels.size)?;
        let alpha = find_alpha(&file, item)?.map(|item| Canvas::read(&file, item, file_bytes)).transpose()?;
        if alpha.as_ref().is_some_and(|alpha| alpha.size != pixels.size) {
            return Err(unsupported("transparency of another size"));
        }
        Ok(Self { file, pixels, alpha, window })
    }

    fn header(&self) -> HeicHeader {
        let canvases = || [Some(&self.pixels), self.alpha.as_ref()].into_iter().flatten();
        let mut coded_size = self.pixels.tiled_size();
        let mut tile_bytes = 0;
        for canvas in canvases() {
            let tiled = canvas.tiled_size();
            coded_size.width = coded_size.width.max(tiled.width);
            coded_size.height = coded_size.height.max(tiled.height);
            tile_bytes = tile_bytes.max(canvas.tile_peak_bytes);
        }
        let band_bytes = coded_size.width as usize * BAND_BYTES_PER_COLUMN;
        let peak_bytes = (self.window.size.area() * 3).saturating_add(tile_bytes).saturating_add(band_bytes);
        let color_profile = self.pixels.read_color_profile(&self.file);
        HeicHeader { size: self.window.size, coded_size, peak_bytes, color_profile }
    }

    fn decode(&self, out: &mut [u8]) -> Result<(), Poison> {
        self.pixels.decode_tiles(&self.file, |tile| {
            self.window.draw(tile, out, |rgb, pixel| rgb.copy_from_slice(&pixel[..3]));
        })?;
        let Some(alpha) = &self.alpha else { return Ok(()) };
        alpha.decode_tiles(&self.file, |tile| {
            self.window.draw(tile, out, |rgb, pixel| *rgb = blend_on_white(*rgb, pixel[0]));
        })
    }
}

/// The item with the transparency of another one.
fn find_alpha(file: &HeifFile<'_>, item: ItemId) -> Result<Option<ItemId>, Poison> {
    for auxiliary in file.referencing_items(item, b"auxl") {
        let is_alpha = find_property(file, auxiliary, |property| match property {
            Property::AuxiliaryType(name) => ALPHA_NAMES.contains(&name.as_str()).then_some(()),
            _ => None,
        })?;
        if is_alpha.is_some() {
            return Ok(Some(auxiliary));
        }
    }
    Ok(None)
}

impl Window {
    /// Hands `paint` each pixel of a tile that is shown, with its place in `out`.
    fn draw(self, tile: &Tile, out: &mut [u8], paint: impl Fn(&mut [u8; 3], [u8; 4])) {
        let Size { width, height } = self.size;
        let (out, _) = out.as_chunks_mut::<3>();
        let left = tile.left.max(self.left);
        let right = (tile.left + tile.size.width).min(self.left + width);
        if left >= right {
            return;
        }
        for_each_row(tile, |y, row| {
            let Some(y) = (tile.top + y).checked_sub(self.top).filter(|y| *y < height) else { return };
            let (row, _) = row.as_chunks::<4>();
            let shown = &row[(left - tile.left) as usize..(right - tile.left) as usize];
            let start = y as usize * width as usize + (left - self.left) as usize;
            for (rgb, pixel) in out[start..].iter_mut().zip(shown) {
                paint(rgb, *pixel);
            }
        });
    }
}

/// What a file says shall be done with its canvas, in this order.
struct Transforms {
    crop: Option<Crop>,
    orientation: Orientation,
}

/// The part of a canvas that is shown: its sides, and the distance of its middle from that of the canvas.
#[derive(Clone, Copy)]
struct Crop {
    size: [f64; 2],
    offset: [f64; 2],
}

impl Transforms {
    fn read(file: &HeifFile<'_>, item: ItemId) -> Result<Self, Poison> {
        let mut transforms = Self { crop: None, orientation: Orientation::Upright };
        for property in file.item_properties(item).map_err(|error| to_poison(&error))? {
            let turn = match property {
                // Anti-clockwise.
                Property::Rotation(1) => Orientation::Rotate270,
                Property::Rotation(2) => Orientation::Rotate180,
                Property::Rotation(3) => Orientation::Rotate90,
                Property::Mirror(true) => Orientation::FlipVertical,
                Property::Mirror(false) => Orientation::FlipHorizontal,
                Property::CleanAperture { width, height, horiz_offset, vert_offset } => {
                    if transforms.crop.is_some() || transforms.orientation != Orientation::Upright {
                        return Err(unsupported("a picture that is cut twice, or after it is turned"));
                    }
                    let fraction = |numerator: f64, denominator: u32| numerator / f64::from(denominator);
                    transforms.crop = Some(Crop {
                        size: [width, height].map(|(n, d)| fraction(f64::from(*n), *d)),
                        offset: [horiz_offset, vert_offset].map(|(n, d)| fraction(f64::from(*n), *d)),
                    });
                    continue;
                }
                _ => continue,
            };
            transforms.orientation = transforms.orientation.then(turn);
        }
        Ok(transforms)
    }

    fn window(&self, canvas: Size) -> Result<Window, Poison> {
        let Some(crop) = self.crop else { return Ok(Window { left: 0, top: 0, size: canvas }) };
        let cut = |axis: usize, side: u32| {
            let middle = (f64::from(side) - 1.0) / 2.0 + crop.offset[axis];
            let start = (middle - (crop.size[axis] - 1.0) / 2.0).round();
            let length = crop.size[axis].round();
            // False for a division by zero too.
            let is_within = start >= 0.0 && length >= 1.0 && start + length <= f64::from(side);
            is_within.then_some([start as u32, length as u32])
        };
        let cuts = cut(0, canvas.width).zip(cut(1, canvas.height));
        let ([left, width], [top, height]) =
            cuts.ok_or_else(|| corrupt("the shown part is not in the picture"))?;
        Ok(Window { left, top, size: Size { width, height } })
    }
}
