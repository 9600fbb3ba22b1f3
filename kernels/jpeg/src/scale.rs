//! How much smaller than the stored picture a file is decoded.

/// The scale of the decoded picture: a block of 8 by 8 pixels becomes this many eighths by as many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scale {
    /// One eighth of the sides.
    Eighth,
    /// A quarter of the sides.
    Quarter,
    /// Three eighths of the sides.
    ThreeEighths,
    /// Half the sides.
    Half,
    /// The stored size.
    Full,
}

impl Scale {
    /// All scales, smallest first.
    pub const ALL: &'static [Self] =
        &[Self::Eighth, Self::Quarter, Self::ThreeEighths, Self::Half, Self::Full];

    /// Returns the scale of that many eighths, if it is one of those that are decoded.
    pub fn from_eighths(eighths: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|scale| scale.eighths() == usize::from(eighths))
    }

    /// Returns the scale in eighths, which is also the number of pixels of a scaled block's side.
    pub fn eighths(self) -> usize {
        match self {
            Self::Eighth => 1,
            Self::Quarter => 2,
            Self::ThreeEighths => 3,
            Self::Half => 4,
            Self::Full => 8,
        }
    }

    /// Returns the scaled length of a side, in pixels, rounded up.
    pub(crate) fn apply(self, side: usize) -> usize {
        (side * self.eighths()).div_ceil(8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_are_rounded_up() {
        let scaled = |side| Scale::ALL.iter().map(|scale| scale.apply(side)).collect::<Vec<_>>();
        assert_eq!(scaled(1001), [126, 251, 376, 501, 1001]);
        assert_eq!(scaled(1), [1; 5]);
    }

    #[test]
    fn only_some_eighths_are_scales() {
        let known: Vec<u8> = (0..=9).filter(|eighths| Scale::from_eighths(*eighths).is_some()).collect();
        assert_eq!(known, [1, 2, 3, 4, 8]);
    }
}
