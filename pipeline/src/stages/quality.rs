//! Which faces are indexed, by size, confidence, pose and sharpness. Lenient on purpose: a rejected face is a photo that
//! its runner never finds, while a poor embedding only fails to match.

use photofinish_kernels::geometry::{Point, Rect};
use photofinish_models::traits::FaceBox;
use photofinish_store::model::photo::{BoundingBox, UnindexedReason};

/// Minimum size of a face: the larger of width and .8 of the height, in pixels of the working frame. Smaller faces have
/// fewer pixels between the eyes than the embedder can use. It is 1 in 128 of a frame of 2048 pixels.
const MIN_FACE_SIZE: f32 = 16.0;

/// Minimum confidence of a face. The detector returns faces from .6 on; below this about half are not faces.
const MIN_CONFIDENCE: f32 = 0.65;

/// How far the nose may be outside the eyes, in eye distances along the line through the eyes: 0 is straight below an
/// eye, as in a three-quarter view; in a profile it is far outside.
const MAX_NOSE_OFFSET: f32 = 0.25;

/// Minimum ratio of the distance between the eyes to the distance from eyes to mouth. Profiles are below it; frontal
/// faces have .9 to 1.1.
const MIN_EYE_RATIO: f32 = 0.3;

/// Minimum variance of the Laplacian of the aligned crop; below it an embedding is meaningless. Measured on race faces
/// of over 60 pixels: blurred until the variance was below 4, they had a mean cosine of .13 to their sharp originals;
/// at 4 to 5 of .30, which one in a hundred pairs of strangers reaches.
pub(crate) const MIN_SHARPNESS: f32 = 4.0;

/// Returns why a face is not to be embedded; `None` when it is.
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

/// Returns why a face is not to be indexed, by the sharpness of its aligned crop; `None` when it is.
pub(crate) fn rejection_by_sharpness(sharpness: f32) -> Option<UnindexedReason> {
    (sharpness < MIN_SHARPNESS).then_some(UnindexedReason::LowSharpness)
}

/// The size of a face in pixels, measured as bib reading does.
pub(crate) fn face_size(face: &Rect) -> f32 {
    face.width().max(0.8 * face.height())
}

/// Whether the landmarks are those of a profile.
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

/// Converts a rectangle of a frame to fractions of the photo, clipped to it; `None` when it is entirely outside.
pub(crate) fn to_bounding_box(rect: &Rect, width: u32, height: u32) -> Option<BoundingBox> {
    let frame = Rect { left: 0.0, top: 0.0, right: width as f32, bottom: height as f32 };
    let clipped = rect.intersection(&frame);
    let is_finite =
        [clipped.left, clipped.top, clipped.right, clipped.bottom].iter().all(|side| side.is_finite());
    (is_finite && clipped.area() > 0.0).then(|| {
        let (width, height) = (f64::from(width), f64::from(height));
        BoundingBox {
            top: f64::from(clipped.top) / height,
            left: f64::from(clipped.left) / width,
            width: f64::from(clipped.width()) / width,
            height: f64::from(clipped.height()) / height,
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
        assert_eq!(rejection_before_embedding(&face(66., 100., 0.9)), None, "a half profile is embedded");
        assert_eq!(rejection_before_embedding(&face(50., 12., 0.9)), Some(UnindexedReason::SmallBoundingBox));
        assert_eq!(rejection_before_embedding(&face(50., 100., 0.62)), Some(UnindexedReason::LowConfidence));
        assert_eq!(rejection_before_embedding(&face(85., 100., 0.9)), Some(UnindexedReason::ExtremePose));
        assert_eq!(rejection_before_embedding(&face(15., 100., 0.9)), Some(UnindexedReason::ExtremePose));
        assert_eq!(rejection_by_sharpness(2.0), Some(UnindexedReason::LowSharpness));
        assert_eq!(rejection_by_sharpness(50.0), None);
    }

    #[test]
    fn a_tilted_head_is_not_turned_away() {
        let rotate = |p: &Point| Point { x: 100.0 - p.y, y: p.x };
        let mut tilted = face(50., 100., 0.9);
        tilted.landmarks = tilted.landmarks.map(|p| rotate(&p));
        assert_eq!(rejection_before_embedding(&tilted), None);
    }

    #[test]
    fn a_box_is_clipped_to_the_photo() {
        let rect = Rect { left: -10.0, top: 50.0, right: 30.0, bottom: 150.0 };
        let fractions = to_bounding_box(&rect, 100, 100).unwrap();
        assert_eq!(fractions, BoundingBox { top: 0.5, left: 0.0, width: 0.3, height: 0.5 });
        assert_eq!(super::to_bounding_box(&Rect { left: 200.0, right: 300.0, ..rect }, 100, 100), None);
        assert_eq!(
            super::to_bounding_box(&Rect { left: f32::NAN, ..rect }, 100, 100).map(|b| b.left),
            Some(0.0)
        );
    }
}
