//! Places in a picture. Everything here is in pixels of the frame it speaks of, origin top-left, f32; fractions of
//! the photo exist only in the store and on the wire.

/// A point.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Point {
    /// Pixels from the left.
    pub x: f32,
    /// Pixels from the top.
    pub y: f32,
}

/// An upright rectangle, `right` and `bottom` exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Rect {
    /// Left edge.
    pub left: f32,
    /// Upper edge.
    pub top: f32,
    /// Right edge.
    pub right: f32,
    /// Lower edge.
    pub bottom: f32,
}

impl Rect {
    /// Pixels across; never negative.
    pub fn width(&self) -> f32 {
        (self.right - self.left).max(0.0)
    }

    /// Pixels down; never negative.
    pub fn height(&self) -> f32 {
        (self.bottom - self.top).max(0.0)
    }

    /// Width times height.
    pub fn area(&self) -> f32 {
        self.width() * self.height()
    }

    /// The area that both cover.
    pub fn intersection_area(&self, other: &Self) -> f32 {
        self.intersection(other).area()
    }

    /// What both cover; empty (zero area) when they do not meet.
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

/// Four corners: top-left, top-right, bottom-right, bottom-left of something that may be turned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quad(pub [Point; 4]);

impl Quad {
    /// The smallest upright rectangle around it.
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

    /// Mean length of the upper and lower sides, and of the left and right ones.
    pub fn size(&self) -> (f32, f32) {
        let [tl, tr, br, bl] = self.0;
        let length = |a: Point, b: Point| (a.x - b.x).hypot(a.y - b.y);
        ((length(tl, tr) + length(bl, br)) / 2.0, (length(tl, bl) + length(tr, br)) / 2.0)
    }
}
