//! The sizes in which an upright photo is needed: for networks, as preview, as thumbnail.

use photofinish_kernels::image::frame::Size;
use photofinish_store::model::album::{AlbumConfig, Recognition};

use crate::stages::grid;

/// Long side of the frame for networks, pixels: bib reading was tuned at this size (docs/READING.md, step 1).
pub(crate) const WORKING_LONG_SIDE: u32 = 2048;

/// Bytes per pixel that are reserved for the preview files. JPEG files of quality 80 take about a fifth of that.
const ENCODED_BYTES_PER_PIXEL: usize = 1;

/// The sizes needed of one photo. None is larger than the photo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutputSizes {
    /// The frame for networks.
    pub(crate) frame: Size,
    /// The preview.
    pub(crate) preview: Size,
    /// The thumbnail, for lists.
    pub(crate) thumbnail: Size,
}

impl OutputSizes {
    /// Computes the sizes for an upright photo of size `photo` in an album with this configuration, whose grids are divided
    /// into at most `max_cells`.
    pub(crate) fn for_photo(photo: Size, config: &AlbumConfig, max_cells: u32) -> Self {
        let grid_long_side = |recognition: &Recognition| {
            grid::grid_of(recognition).map_or(0, |grid| grid::frame_long_side(grid, photo, max_cells))
        };
        let working = WORKING_LONG_SIDE.max(grid_long_side(&config.face)).max(grid_long_side(&config.text));
        Self {
            frame: photo.fit_within(working),
            preview: photo.fit_within(config.preview_max_dimension.max(1)),
            thumbnail: photo.fit_within(config.thumbnail_max_dimension.max(1)),
        }
    }

    /// The size with the most pixels: the others are made from it.
    pub(crate) fn largest(&self) -> Size {
        [self.preview, self.thumbnail]
            .into_iter()
            .fold(self.frame, |largest, size| if size.area() > largest.area() { size } else { largest })
    }

    /// The long side of the largest size, pixels.
    pub(crate) fn long_side(&self) -> u32 {
        self.largest().long_side()
    }

    /// Bytes that resizing takes beside the decoded photo: the largest picture twice, as it is rotated into a second
    /// buffer, or its copy gets a watermark, and the files.
    pub(crate) fn memory_bytes(&self) -> usize {
        let pixels = self.largest().area() * 3 * 2;
        // The preview twice: with the watermark too.
        pixels + (2 * self.preview.area() + self.thumbnail.area()) * ENCODED_BYTES_PER_PIXEL
    }
}

#[cfg(test)]
mod tests {
    use photofinish_store::model::album::{Grid, RecognitionMode};

    use super::*;
    use crate::testing::album_config;

    const PHOTO: Size = Size { width: 6000, height: 4000 };

    #[test]
    fn the_largest_consumer_decides() {
        let mut config = album_config();
        assert_eq!(OutputSizes::for_photo(PHOTO, &config, 16).long_side(), 2048);
        config.preview_max_dimension = 4096;
        assert_eq!(OutputSizes::for_photo(PHOTO, &config, 16).long_side(), 4096);
        config.thumbnail_max_dimension = 5000;
        assert_eq!(OutputSizes::for_photo(PHOTO, &config, 16).long_side(), 5000);
        config.preview_max_dimension = 512;
        config.thumbnail_max_dimension = 64;
        assert_eq!(OutputSizes::for_photo(PHOTO, &config, 16).long_side(), 2048);
    }

    #[test]
    fn nothing_is_larger_than_the_photo() {
        let small = Size { width: 300, height: 700 };
        let sizes = OutputSizes::for_photo(small, &album_config(), 16);
        assert_eq!((sizes.frame, sizes.preview), (small, small));
        assert_eq!(sizes.thumbnail, Size { width: 219, height: 512 });
    }

    #[test]
    fn a_grid_needs_more_pixels_only_while_it_is_enabled() {
        let mut config = album_config();
        config.face.mode = RecognitionMode::Grid;
        config.face.grid = Some(Grid { rows: 2, columns: 3, cell_width: 2000, cell_height: 2000 });
        assert!(OutputSizes::for_photo(PHOTO, &config, 16).long_side() > 4000);
        config.face.enabled = false;
        assert_eq!(OutputSizes::for_photo(PHOTO, &config, 16).long_side(), 2048);
    }
}
