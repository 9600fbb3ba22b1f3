//! What a picture is put together from: one coded picture, or a grid of them, all of one size. Checked before any of them
//! is decoded.

use std::borrow::Cow;

use heifer::color::ColorParams;
use heifer::heifer_isobmff::boxes::{ColorInfo, ConstructionMethod, Extent, HevcConfig, Property};
use heifer::heifer_isobmff::{Error, FourCC, HeifFile, ItemId};
use photofinish_kernels::image::frame::Size;

use super::container::{corrupt, to_poison, unsupported};
use super::stream::{self, CodedFormat, Frame};
use crate::engine::fault::Poison;
use crate::image::color_profile::ColorProfile;

/// The most tiles of a grid. A phone's photo of 200 megapixels has 768.
const MAX_TILES: usize = 4_096;
/// A coded picture is larger than what its item claims by less than this: its sides are multiples of its blocks' side.
const MAX_PADDING: u32 = 128;

/// The coded pictures of an item, in rows.
pub(super) struct Canvas {
    /// What the item shows of its tiles.
    pub(super) size: Size,
    item: ItemId,
    tiles: Vec<ItemId>,
    tile_size: Size,
    columns: u32,
    /// Bytes of memory that decoding one tile takes at most, with its stream.
    pub(super) tile_peak_bytes: usize,
}

/// A decoded tile, and where its top left corner is on the canvas.
pub(super) struct Tile {
    pub(super) frame: Frame,
    pub(super) params: ColorParams,
    pub(super) size: Size,
    pub(super) left: u32,
    pub(super) top: u32,
}

impl Canvas {
    /// Reads what an item is put together from.
    ///
    /// # Errors
    /// When that is damaged, above the limits, or of an unsupported kind.
    pub(super) fn read(file: &HeifFile<'_>, item: ItemId, file_bytes: usize) -> Result<Self, Poison> {
        let kind = file.item(item).map_err(|error| to_poison(&error))?.item_type;
        let mut canvas = match &kind.0 {
            b"hvc1" => {
                let size = read_size(file, item)?;
                Self { size, item, tiles: vec![item], tile_size: size, columns: 1, tile_peak_bytes: 0 }
            }
            b"grid" => Self::read_grid(file, item)?,
            _ => return Err(unsupported(&format!("pictures of the kind {kind}"))),
        };
        canvas.check_tiles(file, file_bytes)?;
        Ok(canvas)
    }

    fn read_grid(file: &HeifFile<'_>, item: ItemId) -> Result<Self, Poison> {
        // Built from other items, it could be of any size: its own extents are at most the file.
        data_bytes(file, item)?;
        let grid = file.grid(item).map_err(|error| to_poison(&error))?;
        let tiles = file.referenced_items(item, b"dimg").to_vec();
        let [rows, columns] = [grid.rows, grid.columns].map(u32::from);
        if tiles.len() > MAX_TILES || rows * columns > MAX_TILES as u32 {
            return Err(unsupported(&format!("{rows} x {columns} tiles, the limit is {MAX_TILES}")));
        }
        let first = *tiles.first().ok_or_else(|| corrupt("a grid without tiles"))?;
        if tiles.len() != (rows * columns) as usize {
            return Err(corrupt("a grid with another number of tiles"));
        }
        let tile_size = read_size(file, first)?;
        let size = Size { width: grid.output_width, height: grid.output_height };
        let fits = |side: u32, tile: u32, count: u32| {
            let [side, tile, count] = [side, tile, count].map(u64::from);
            side > tile * (count - 1) && side <= tile * count
        };
        if !fits(size.width, tile_size.width, columns) || !fits(size.height, tile_size.height, rows) {
            return Err(corrupt("a grid of another size than its tiles"));
        }
        Ok(Self { size, item, tiles, tile_size, columns, tile_peak_bytes: 0 })
    }

    /// Checks each tile's size, format and bytes. The bytes of all tiles are at most those of the file, or a short file
    /// could have thousands of long tiles.
    fn check_tiles(&mut self, file: &HeifFile<'_>, file_bytes: usize) -> Result<(), Poison> {
        let mut left_bytes = file_bytes;
        for tile in &self.tiles {
            if file.item(*tile).map_err(|error| to_poison(&error))?.item_type != FourCC(*b"hvc1") {
                return Err(unsupported("a grid of other pictures than coded ones"));
            }
            if *tile != self.item && find_property(file, *tile, transforms)?.is_some() {
                return Err(unsupported("tiles that are turned or cut"));
            }
            if read_size(file, *tile)? != self.tile_size {
                return Err(corrupt("tiles of different sizes"));
            }
            let bytes = data_bytes(file, *tile)?;
            left_bytes =
                left_bytes.checked_sub(bytes).ok_or_else(|| corrupt("tiles that share their bytes"))?;
            let format = CodedFormat::read(read_config(file, *tile)?)?;
            let padding = |coded: u32, claimed: u32| coded.saturating_sub(claimed);
            if padding(format.coded_size.width, self.tile_size.width) >= MAX_PADDING
                || padding(format.coded_size.height, self.tile_size.height) >= MAX_PADDING
            {
                return Err(corrupt("a coded picture is larger than its item claims"));
            }
            // The stream is copied once as it is and once without its escapes.
            let peak = (format.coded_size.area() * format.bytes_per_pixel).saturating_add(2 * bytes);
            self.tile_peak_bytes = self.tile_peak_bytes.max(peak);
        }
        Ok(())
    }

    /// The sides of all tiles together; those of the last column and row may reach beyond the canvas.
    pub(super) fn tiled_size(&self) -> Size {
        let rows = self.tiles.len() as u32 / self.columns;
        Size {
            width: self.tile_size.width.saturating_mul(self.columns),
            height: self.tile_size.height.saturating_mul(rows),
        }
    }

    /// Decodes one tile after the other, and hands each to `paint`.
    ///
    /// # Errors
    /// When one of them is damaged, or of an unsupported kind.
    pub(super) fn decode_tiles(
        &self,
        file: &HeifFile<'_>,
        mut paint: impl FnMut(&Tile),
    ) -> Result<(), Poison> {
        for (number, item) in (0_u32..).zip(&self.tiles) {
            let config = read_config(file, *item)?;
            let data: Cow<'_, [u8]> = file.item_data(*item).map_err(|error| to_poison(&error))?;
            let frame = stream::decode(config, &data, CodedFormat::read(config)?)?;
            let Size { width, height } = self.tile_size;
            if frame.widths[0] < width || frame.heights[0] < height {
                return Err(corrupt("a coded picture is smaller than its item claims"));
            }
            let params = self.color_params(file, *item, &frame)?;
            let (left, top) = (number % self.columns * width, number / self.columns * height);
            paint(&Tile { frame, params, size: self.tile_size, left, top });
        }
        Ok(())
    }

    /// Returns the profile of the whole picture, else of its first tile. `heifer` has a function for that, which would follow
    /// references that lead in a circle for ever.
    pub(super) fn read_color_profile(&self, file: &HeifFile<'_>) -> Option<ColorProfile> {
        let items = [Some(self.item), self.tiles.first().copied()];
        items.into_iter().flatten().find_map(|item| {
            let profile = find_property(file, item, |property| match property {
                Property::Color(ColorInfo::Icc(profile)) => ColorProfile::from_bytes(profile),
                _ => None,
            });
            profile.ok().flatten()
        })
    }

    /// How brightness and colour become RGB: as the tile says, or the whole picture, or the stream.
    fn color_params(&self, file: &HeifFile<'_>, tile: ItemId, frame: &Frame) -> Result<ColorParams, Poison> {
        for item in [tile, self.item] {
            let found = find_property(file, item, |property| match property {
                Property::Color(ColorInfo::Nclx { matrix, full_range, .. }) => {
                    Some(ColorParams { matrix: *matrix, full_range: *full_range })
                }
                _ => None,
            })?;
            if let Some(params) = found {
                return Ok(params);
            }
        }
        Ok(ColorParams::from_frame(frame))
    }
}

/// The first property of an item that `read` knows.
pub(super) fn find_property<'a, T>(
    file: &'a HeifFile<'_>,
    item: ItemId,
    read: impl FnMut(&'a Property) -> Option<T>,
) -> Result<Option<T>, Poison> {
    Ok(file.item_properties(item).map_err(|error| to_poison(&error))?.find_map(read))
}

fn transforms(property: &Property) -> Option<()> {
    let transforms =
        matches!(property, Property::Rotation(_) | Property::Mirror(_) | Property::CleanAperture { .. });
    transforms.then_some(())
}

fn read_size(file: &HeifFile<'_>, item: ItemId) -> Result<Size, Poison> {
    let size = file.image_size(item).map_err(|error| to_poison(&error))?;
    let (width, height) = size.ok_or_else(|| corrupt("a picture without a size"))?;
    if width == 0 || height == 0 {
        return Err(corrupt("a side of zero pixels"));
    }
    Ok(Size { width, height })
}

fn read_config<'a>(file: &'a HeifFile<'_>, item: ItemId) -> Result<&'a HevcConfig, Poison> {
    let config = file.hevc_config(item).map_err(|error| to_poison(&error))?;
    config.ok_or_else(|| corrupt("a picture without parameters"))
}

/// The bytes of an item, as claimed.
fn data_bytes(file: &HeifFile<'_>, item: ItemId) -> Result<usize, Poison> {
    let item = file.item(item).map_err(|error| to_poison(&error))?;
    let location = item.location.as_ref().ok_or_else(|| corrupt("a picture without bytes"))?;
    if location.construction_method == ConstructionMethod::Item {
        return Err(unsupported("a picture made from the bytes of other items"));
    }
    let claimed = |extent: &Extent| match extent.length {
        // The rest of the file, whatever that is.
        0 => Err(unsupported("a picture of unknown length")),
        length => usize::try_from(length).map_err(|_| to_poison(&Error::UnexpectedEof)),
    };
    location.extents.iter().try_fold(0_usize, |sum, extent| Ok(sum.saturating_add(claimed(extent)?)))
}
