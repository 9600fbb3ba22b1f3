//! The output of a DBNet text detector.

use crate::image::frame::Size;

/// The network's output for one picture: row-major text probabilities, 0 to 1.
#[derive(Clone, Copy, Debug)]
pub struct ProbabilityMap<'a> {
    pub(super) values: &'a [f32],
    pub(super) size: Size,
}

impl<'a> ProbabilityMap<'a> {
    /// Borrows `size.width * size.height` row-major probabilities; `None` when the length differs or is zero.
    pub fn new(values: &'a [f32], size: Size) -> Option<Self> {
        (values.len() == size.area() && size.area() > 0).then_some(Self { values, size })
    }

    /// Width and height.
    pub fn size(&self) -> Size {
        self.size
    }

    /// All values, row after row.
    pub fn values(&self) -> &'a [f32] {
        self.values
    }

    /// Row `y`.
    ///
    /// # Panics
    /// When `y` is not below the height.
    pub fn row(&self, y: usize) -> &'a [f32] {
        let width = self.size.width as usize;
        &self.values[y * width..(y + 1) * width]
    }

    /// The highest probability in the columns `from..to`, clamped to the map; 0 when the range is empty.
    pub fn max_in_columns(&self, from: usize, to: usize) -> f32 {
        let width = self.size.width as usize;
        let (from, to) = (from.min(width), to.min(width));
        if from >= to {
            return 0.0;
        }
        // Several at a time: one alone would wait for each comparison.
        let mut highest = [0.0_f32; 16];
        for row in self.values.chunks_exact(width) {
            let (groups, rest) = row[from..to].as_chunks::<16>();
            for values in groups.iter().map(|group| group.as_slice()).chain([rest]) {
                for (highest, &value) in highest.iter_mut().zip(values) {
                    *highest = if value > *highest { value } else { *highest };
                }
            }
        }
        highest.into_iter().fold(0.0, f32::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_in_columns_covers_the_given_columns() {
        let size = Size { width: 4, height: 2 };
        let values = [0.1, 0.2, 0.9, 0.3, 0.5, 0.05, 0.1, 0.0];
        let map = ProbabilityMap::new(&values, size).unwrap();
        assert_eq!(map.max_in_columns(0, 2), 0.5);
        assert_eq!(map.max_in_columns(1, 99), 0.9);
        assert_eq!(map.max_in_columns(3, 3), 0.0);
    }

    #[test]
    fn the_highest_is_found_wherever_it_is() {
        let size = Size { width: 37, height: 3 };
        for at in 0..size.area() {
            let mut values = vec![0.2; size.area()];
            values[at] = 0.7;
            let map = ProbabilityMap::new(&values, size).unwrap();
            let is_seen = (3..36).contains(&(at % 37));
            assert_eq!(map.max_in_columns(3, 36), if is_seen { 0.7 } else { 0.2 }, "{at}");
        }
    }
}
