//! Which faces are worth a vector, and why not: size, sureness, pose, sharpness. Lenient on purpose: a face left out
//! is a photo that its runner never finds, a poor vector only fails to match. Pure arithmetic.

use photofinish_kernels::geometry::{Point, Rect};
use photofinish_models::traits::FaceBox;
use photofinish_store::model::photo::{BoundingBox, UnindexedReason};

/// Faces whose size (the larger of width and .8 of the height, in pixels of the working frame) is below this have
/// fewer pixels between the eyes than the embedder can use. Of 2048 pixels that is 1 in 100.
const MIN_FACE_SIZE: f32 = 16.0;

/// The detector keeps faces from .6 on; below this about every second is none.
const MIN_CONFIDENCE: f32 = 0.65;

/// How far the nose may stand beyond an eye, in eye distances along the line of the eyes: 0 is straight below the
/// eye, a three-quarter view, a profile is far out.
const MAX_NOSE_OFFSET: f32 = 0.25;

/// Eyes that are nearer to each other than this part of their height above the mouth are those of a profile;
/// frontal faces have .9 to 1.1.
const MIN_EYE_RATIO: f32 = 0.3;

/// Variance of the Laplacian of the aligned crop below which a vector says nothing: race faces of over 60 pixels,
/// blurred until they were below 4, had a cosine of .13 to their own sharp selves in the mean, and of .30 at 4 to 5,
/// which is what one in a hundred strangers has.
const MIN_SHARPNESS: f32 = 4.0;

/// Why a face gets no vector, before one is made.
pub(crate) fn rejection_before_embedding(face: &FaceBox) -> Option<UnindexedReason> {
    if face_size(&face.rect) < MIN_FACE_SIZE {
        Some(UnindexedReason::SmallBoundingBox)
    } else if face.score < MIN_CONFIDENCE {
        Some(UnindexedReason::LowConfidence)
    } else if is_turned_away(&face.landmarks) {
        Some(UnindexedReason::ExtremePose)
    } else {
        None
    }
}

/// Why a face's vector is not kept: its aligned crop is a blur.
pub(crate) fn rejection_after_embedding(sharpness: f32) -> Option<UnindexedReason> {
    (sharpness < MIN_SHARPNESS).then_some(UnindexedReason::LowSharpness)
}

/// How large a face is: as the bib recipe measures it.
fn face_size(face: &Rect) -> f32 {
    face.width().max(0.8 * face.height())
}

/// Whether the five points are those of a profile.
fn is_turned_away([left_eye, right_eye, nose, left_mouth, right_mouth]: &[Point; 5]) -> bool {
    let minus = |a: &Point, b: &Point| Point { x: a.x - b.x, y: a.y - b.y };
    let eyes = minus(right_eye, left_eye);
    let eye_distance = eyes.x.hypot(eyes.y);
    let middle = |a: &Point, b: &Point| Point { x: (a.x + b.x) / 2.0, y: (a.y + b.y) / 2.0 };
    let down = minus(&middle(left_mouth, right_mouth), &middle(left_eye, right_eye));
    if eye_distance < MIN_EYE_RATIO * down.x.hypot(down.y) || eye_distance <= 0.0 {
        return true;
    }
    let to_nose = minus(nose, left_eye);
    let along = (to_nose.x * eyes.x + to_nose.y * eyes.y) / (eye_distance * eye_distance);
    !(-MAX_NOSE_OFFSET..=1.0 + MAX_NOSE_OFFSET).contains(&along)
}

/// A rectangle of a frame as fractions of the photo, cut at its edges; `None` when nothing of it is in the photo.
pub(crate) fn to_bounding_box(place: &Rect, width: u32, height: u32) -> Option<BoundingBox> {
    let frame = Rect { left: 0.0, top: 0.0, right: width as f32, bottom: height as f32 };
    let cut = place.intersection(&frame);
    let is_number = [cut.left, cut.top, cut.right, cut.bottom].iter().all(|side| side.is_finite());
    (is_number && cut.area() > 0.0).then(|| {
        let (width, height) = (f64::from(width), f64::from(height));
        BoundingBox {
            top: f64::from(cut.top) / height,
            left: f64::from(cut.left) / width,
            width: f64::from(cut.width()) / width,
            height: f64::from(cut.height()) / height,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(x: f32, y: f32) -> Point {
        Point { x, y }
    }

    fn face(nose_x: f32, side: f32, score: f32) -> FaceBox {
        FaceBox {
            rect: Rect { left: 0.0, top: 0.0, right: side, bottom: side },
            landmarks: [
                point(30., 40.),
                point(70., 40.),
                point(nose_x, 60.),
                point(35., 80.),
                point(65., 80.),
            ],
            score,
        }
    }

    #[test]
    fn each_rejection_reason_is_reported() {
        assert_eq!(rejection_before_embedding(&face(50., 100., 0.9)), None);
        assert_eq!(
            rejection_before_embedding(&face(66., 100., 0.9)),
            None,
            "a half profile is worth a vector"
        );
        assert_eq!(rejection_before_embedding(&face(50., 12., 0.9)), Some(UnindexedReason::SmallBoundingBox));
        assert_eq!(rejection_before_embedding(&face(50., 100., 0.62)), Some(UnindexedReason::LowConfidence));
        assert_eq!(rejection_before_embedding(&face(85., 100., 0.9)), Some(UnindexedReason::ExtremePose));
        assert_eq!(rejection_before_embedding(&face(15., 100., 0.9)), Some(UnindexedReason::ExtremePose));
        assert_eq!(rejection_after_embedding(2.0), Some(UnindexedReason::LowSharpness));
        assert_eq!(rejection_after_embedding(50.0), None);
    }

    #[test]
    fn a_tilted_head_is_not_turned_away() {
        let turn = |p: &Point| Point { x: 100.0 - p.y, y: p.x };
        let mut tilted = face(50., 100., 0.9);
        tilted.landmarks = tilted.landmarks.map(|p| turn(&p));
        assert_eq!(rejection_before_embedding(&tilted), None);
    }

    #[test]
    fn a_box_is_cut_at_the_photo() {
        let place = Rect { left: -10.0, top: 50.0, right: 30.0, bottom: 150.0 };
        let fractions = to_bounding_box(&place, 100, 100).unwrap();
        assert_eq!(fractions, BoundingBox { top: 0.5, left: 0.0, width: 0.3, height: 0.5 });
        assert_eq!(super::to_bounding_box(&Rect { left: 200.0, right: 300.0, ..place }, 100, 100), None);
        assert_eq!(
            super::to_bounding_box(&Rect { left: f32::NAN, ..place }, 100, 100).map(|b| b.left),
            Some(0.0)
        );
    }
}
