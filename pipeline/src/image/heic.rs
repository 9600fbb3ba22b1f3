//! HEIC photos, as phones write them: decoded by the crate `heifer`, at full scale, as RGB of the sRGB space. Rotation and
//! mirroring are part of the file and are applied; its EXIF orientation says the same again and is ignored.
//!
//! The container is read first. What it claims is checked before a pixel is allocated: few items and tiles, and no picture
//! made of pictures other than a grid of coded tiles.

use heifer::heifer_isobmff::boxes::Property;
use heifer::heifer_isobmff::{HeifFile, ItemId};
use heifer::{Error, Options};
use photofinish_kernels::image::frame::Size;
use photofinish_store::model::photo::FailureReason;

use crate::engine::fault::Poison;

/// Most items of a file: tiles, thumbnails, depth maps, metadata.
const MAX_ITEMS: usize = 5_000;
/// Most tiles of a picture. A phone's photo of 48 megapixels has 192.
const MAX_TILES: usize = 4_096;
/// Peak bytes per pixel: RGBA, its copy while it is turned, RGB, and the planes of 16 bits of a picture in one piece.
const BYTES_PER_PIXEL: usize = 18;
/// A coded picture may be larger than the file says, by the rest of its last blocks.
const BLOCK: u64 = 64;

/// The header of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeicHeader {
    /// Size of the picture as it is decoded: upright.
    pub(crate) size: Size,
    /// Peak memory of decoding, bytes, including the result.
    pub(crate) peak_bytes: usize,
    /// Pixels of the largest coded picture that is decoded.
    coded_pixels: u64,
}

/// Reads the header.
///
/// # Errors
/// When it is damaged, or of a kind that is not decoded.
pub(crate) fn read_header(bytes: &[u8]) -> Result<HeicHeader, Poison> {
    let file = HeifFile::parse(bytes).map_err(|error| to_poison(error.into()))?;
    if file.items.len() > MAX_ITEMS {
        return Err(corrupt(&format!("{} items, the limit is {MAX_ITEMS}", file.items.len())));
    }
    let primary = file.primary_item().map_err(|error| to_poison(error.into()))?;
    let claimed = match &primary.item_type.0 {
        b"hvc1" => size_of(&file, primary.id)?,
        b"grid" => size_of_grid(&file, primary.id)?,
        b"av01" => return Err(unsupported("avif is not supported")),
        _ => return Err(unsupported("a picture made of others is not supported")),
    };
    let Size { width, height } = claimed;
    if width == 0 || height == 0 {
        return Err(corrupt("a side of zero pixels"));
    }
    let size = transform(&file, primary.id, claimed)?;
    // Not as `usize`: the sides are those that the file claims, and are compared with the limits after this.
    let padded = |side: u32| u64::from(side).next_multiple_of(BLOCK);
    let coded_pixels = padded(width).saturating_mul(padded(height));
    let peak_bytes = usize::try_from(coded_pixels).unwrap_or(usize::MAX).saturating_mul(BYTES_PER_PIXEL);
    Ok(HeicHeader { size, peak_bytes: peak_bytes.saturating_add(bytes.len()), coded_pixels })
}

fn size_of(file: &HeifFile<'_>, item: ItemId) -> Result<Size, Poison> {
    let size = file.image_size(item).map_err(|error| to_poison(error.into()))?;
    let (width, height) = size.ok_or_else(|| corrupt("a picture without a size"))?;
    Ok(Size { width, height })
}

/// The size of a picture of tiles, all of which are coded pictures no larger than it.
fn size_of_grid(file: &HeifFile<'_>, item: ItemId) -> Result<Size, Poison> {
    let grid = file.grid(item).map_err(|error| to_poison(error.into()))?;
    let tiles = file.referenced_items(item, b"dimg");
    if tiles.len() > MAX_TILES {
        return Err(corrupt(&format!("{} tiles, the limit is {MAX_TILES}", tiles.len())));
    }
    let is_coded = |tile: &ItemId| file.item(*tile).is_ok_and(|tile| tile.item_type.0 == *b"hvc1");
    if !tiles.iter().all(is_coded) {
        return Err(unsupported("a tile that is no coded picture"));
    }
    Ok(Size { width: grid.output_width, height: grid.output_height })
}

/// The size after what the file says is done to the picture: it is cut, turned and mirrored.
fn transform(file: &HeifFile<'_>, item: ItemId, mut size: Size) -> Result<Size, Poison> {
    for property in file.item_properties(item).map_err(|error| to_poison(error.into()))? {
        match *property {
            Property::CleanAperture { width, height, .. } => {
                let side = |(part, whole): (u32, u32)| (f64::from(part) / f64::from(whole)).round() as u32;
                size = Size { width: side(width).min(size.width), height: side(height).min(size.height) };
            }
            Property::Rotation(1 | 3) => size = Size { width: size.height, height: size.width },
            _ => {}
        }
    }
    Ok(size)
}

/// Decodes as row-major RGB into `out` and sets its length. The caller has checked the header against the limits.
///
/// # Errors
/// When the file is damaged.
pub(crate) fn decode(bytes: &[u8], header: &HeicHeader, out: &mut Vec<u8>) -> Result<(), Poison> {
    // Photos are decoded beside each other: the tiles of one need no threads of their own.
    let options = Options { max_threads: 1, max_pixels: header.coded_pixels };
    let image = match heifer::decode_srgb_rgba8(bytes, &options) {
        // A space that cannot be converted: pale colours are better than no photo.
        Err(Error::Unsupported(_)) => heifer::decode_rgba8(bytes, &options),
        decoded => decoded,
    };
    let image = image.map_err(to_poison)?;
    if (image.width, image.height) != (header.size.width, header.size.height) {
        return Err(corrupt("the picture has another size than its header says"));
    }
    out.resize(header.size.area() * 3, 0);
    let (target, _) = out.as_chunks_mut::<3>();
    let (source, _) = image.data.as_chunks::<4>();
    for (target, [red, green, blue, alpha]) in target.iter_mut().zip(source) {
        *target = if image.has_alpha {
            [red, green, blue].map(|value| blend_on_white(*value, *alpha))
        } else {
            [*red, *green, *blue]
        };
    }
    Ok(())
}

fn blend_on_white(value: u8, alpha: u8) -> u8 {
    let (value, alpha) = (u32::from(value), u32::from(alpha));
    ((value * alpha + 255 * (255 - alpha) + 127) / 255) as u8
}

fn corrupt(what: &str) -> Poison {
    Poison::new(FailureReason::CorruptImage, format!("heic: {what}"))
}

fn unsupported(what: &str) -> Poison {
    Poison::new(FailureReason::UnsupportedFormat, format!("heic: {what}"))
}

fn to_poison(error: Error) -> Poison {
    match error {
        Error::Unsupported(what) => unsupported(&what),
        error => corrupt(&error.to_string()),
    }
}
