//! Which sizes of an upright photo are wanted by whom. Pure arithmetic.

use photofinish_kernels::frame::Size;
use photofinish_store::model::album::{AlbumConfig, Recognition, RecognitionMode};

use crate::stages::grid;

/// The long side at which networks see a photo: what the bib recipe was measured on (docs/READING.md, step 1).
pub(crate) const WORKING_LONG_SIDE: u32 = 2048;

/// JPEG files of quality 80 take about a fifth of a byte a pixel; this much is held for them.
const ENCODED_BYTES_PER_PIXEL: usize = 1;

/// The sizes wanted of one photo. None is larger than the photo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutputSizes {
    /// For the networks.
    pub(crate) frame: Size,
    /// For people.
    pub(crate) preview: Size,
    /// For lists.
    pub(crate) thumbnail: Size,
}

impl OutputSizes {
    /// Of an upright photo of size `photo` in an album of this configuration.
    pub(crate) fn for_photo(photo: Size, config: &AlbumConfig) -> Self {
        let wanted = |recognition: &Recognition| match (&recognition.mode, &recognition.grid) {
            (RecognitionMode::Grid, Some(grid)) if recognition.enabled => grid::frame_long_side(grid, photo),
            _ => 0,
        };
        let working = WORKING_LONG_SIDE.max(wanted(&config.face)).max(wanted(&config.text));
        Self {
            frame: photo.within(working),
            preview: photo.within(config.preview_max_dimension.max(1)),
            thumbnail: photo.within(config.thumbnail_max_dimension.max(1)),
        }
    }

    /// The largest of them: all others are made of it.
    pub(crate) fn largest(&self) -> Size {
        let both = [self.preview, self.thumbnail];
        both.into_iter()
            .fold(self.frame, |largest, size| if size.area() > largest.area() { size } else { largest })
    }

    /// The long side of the largest, pixels.
    pub(crate) fn long_side(&self) -> u32 {
        let largest = self.largest();
        largest.width.max(largest.height)
    }

    /// Bytes of memory that making them takes beside the decoded photo: the largest, once more while it is turned,
    /// and the files.
    pub(crate) fn memory_bytes(&self) -> usize {
        let pixels = self.largest().area() * 3 * 2;
        pixels + (self.preview.area() + self.thumbnail.area()) * ENCODED_BYTES_PER_PIXEL
    }
}

#[cfg(test)]
mod tests {
    use photofinish_store::model::album::Grid;

    use super::*;
    use crate::testing::album_config;

    const PHOTO: Size = Size { width: 6000, height: 4000 };

    #[test]
    fn the_largest_consumer_decides() {
        let mut config = album_config();
        assert_eq!(OutputSizes::for_photo(PHOTO, &config).long_side(), 2048);
        config.preview_max_dimension = 4096;
        assert_eq!(OutputSizes::for_photo(PHOTO, &config).long_side(), 4096);
        config.thumbnail_max_dimension = 5000;
        assert_eq!(OutputSizes::for_photo(PHOTO, &config).long_side(), 5000);
        config.preview_max_dimension = 512;
        config.thumbnail_max_dimension = 64;
        assert_eq!(OutputSizes::for_photo(PHOTO, &config).long_side(), 2048);
    }

    #[test]
    fn nothing_is_larger_than_the_photo() {
        let small = Size { width: 300, height: 700 };
        let sizes = OutputSizes::for_photo(small, &album_config());
        assert_eq!((sizes.frame, sizes.preview), (small, small));
        assert_eq!(sizes.thumbnail, Size { width: 219, height: 512 });
    }

    #[test]
    fn a_grid_needs_more_pixels_only_while_it_is_enabled() {
        let mut config = album_config();
        config.face.mode = RecognitionMode::Grid;
        config.face.grid = Some(Grid { rows: 2, columns: 3, cell_width: 2000, cell_height: 2000 });
        assert!(OutputSizes::for_photo(PHOTO, &config).long_side() > 4000);
        config.face.enabled = false;
        assert_eq!(OutputSizes::for_photo(PHOTO, &config).long_side(), 2048);
    }
}
