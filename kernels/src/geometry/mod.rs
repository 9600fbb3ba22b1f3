//! Points, rectangles and quadrilaterals in a frame: f32 pixels, origin top-left. Fractions of the photo exist only in
//! the store and on the wire.

pub mod nms;

/// A point of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Point {
    /// Pixels from the left.
    pub x: f32,
    /// Pixels from the top.
    pub y: f32,
}

/// An axis-aligned rectangle, `right` and `bottom` exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Rect {
    /// Left edge, pixels.
    pub left: f32,
    /// Upper edge, pixels.
    pub top: f32,
    /// Right edge, pixels.
    pub right: f32,
    /// Lower edge, pixels.
    pub bottom: f32,
}

impl Rect {
    /// Width, pixels; never negative.
    pub fn width(&self) -> f32 {
        (self.right - self.left).max(0.0)
    }

    /// Height, pixels; never negative.
    pub fn height(&self) -> f32 {
        (self.bottom - self.top).max(0.0)
    }

    /// Width times height, square pixels.
    pub fn area(&self) -> f32 {
        self.width() * self.height()
    }

    /// The area of the intersection, square pixels; 0 when the rectangles do not overlap.
    pub fn intersection_area(&self, other: &Self) -> f32 {
        self.intersection(other).area()
    }

    /// The intersection; of zero area when the rectangles do not overlap.
    pub fn intersection(&self, other: &Self) -> Self {
        Self {
            left: self.left.max(other.left),
            top: self.top.max(other.top),
            right: self.right.min(other.right),
            bottom: self.bottom.min(other.bottom),
        }
    }

    /// Intersection over union, 0 to 1.
    pub fn iou(&self, other: &Self) -> f32 {
        let common = self.intersection_area(other);
        let union = self.area() + other.area() - common;
        if union > 0.0 { common / union } else { 0.0 }
    }
}

/// Four corners of something that may be rotated: top-left, top-right, bottom-right, bottom-left.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quad(pub [Point; 4]);

impl Quad {
    /// The smallest axis-aligned rectangle around the corners.
    pub fn bounds(&self) -> Rect {
        let mut bounds = Rect {
            left: f32::INFINITY,
            top: f32::INFINITY,
            right: f32::NEG_INFINITY,
            bottom: f32::NEG_INFINITY,
        };
        for corner in &self.0 {
            bounds.left = bounds.left.min(corner.x);
            bounds.top = bounds.top.min(corner.y);
            bounds.right = bounds.right.max(corner.x);
            bounds.bottom = bounds.bottom.max(corner.y);
        }
        bounds
    }

    /// Mean of the corners.
    pub fn centre(&self) -> Point {
        let sum = self.0.iter().fold(Point::default(), |s, p| Point { x: s.x + p.x, y: s.y + p.y });
        Point { x: sum.x / 4.0, y: sum.y / 4.0 }
    }

    /// Width and height, pixels: the mean length of the upper and lower sides, and of the left and right ones.
    pub fn size(&self) -> (f32, f32) {
        let [tl, tr, br, bl] = self.0;
        let length = |a: Point, b: Point| (a.x - b.x).hypot(a.y - b.y);
        ((length(tl, tr) + length(bl, br)) / 2.0, (length(tl, bl) + length(tr, br)) / 2.0)
    }
}
