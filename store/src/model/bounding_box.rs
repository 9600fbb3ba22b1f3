//! Places in photos.

use serde::{Deserialize, Serialize};

/// A rectangle in a photo, in fractions (0 to 1) of the upright photo.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BoundingBox {
    /// Distance of its upper edge from that of the photo.
    pub top: f64,
    /// Distance of its left edge from that of the photo.
    pub left: f64,
    /// Fraction of the photo's width.
    pub width: f64,
    /// Fraction of the photo's height.
    pub height: f64,
}

/// The share of their common area from which two boxes are of the same face.
const SAME_FACE: f64 = 0.5;

impl BoundingBox {
    /// Returns whether two boxes are of the same face, read at different times.
    pub fn is_same_face(&self, other: &Self) -> bool {
        self.overlap(other) >= SAME_FACE
    }

    /// Returns the area that two boxes share, as a fraction of the area that they cover together: 0 to 1.
    pub fn overlap(&self, other: &Self) -> f64 {
        let shared = |a: f64, a_length: f64, b: f64, b_length: f64| {
            ((a + a_length).min(b + b_length) - a.max(b)).max(0.0)
        };
        let both = shared(self.left, self.width, other.left, other.width)
            * shared(self.top, self.height, other.top, other.height);
        let covered = self.width * self.height + other.width * other.height - both;
        if covered > 0.0 { both / covered } else { 0.0 }
    }
}
