//! Several items in one call of a network, as on devices: the results are those of each item alone.

use photofinish_kernels::image::frame::{Frame, Picture, Size};
use photofinish_kernels::resize::{Filter, ResizeTarget, Resizer};
use photofinish_models::bucket::Bucket;
use photofinish_models::onnx::kernels::KernelDevice;
use photofinish_models::reading::GateScope;
use photofinish_models::traits::{
    BibPattern, BibReader, BibText, FaceCrop, FaceDetector, FaceEmbedder, ReadRequest,
};
use photofinish_zoo::ModelSet;

use crate::environment::shared_environment;
use crate::pictures::{ReferenceFace, ReferencePicture};
use crate::{
    Calls, LONG_SIDE, cosine, embed_known, load_bib_reader, load_bib_reader_for, load_embedder, load_yunet,
};

#[test]
fn a_batch_of_faces_gives_the_vectors_of_each_alone() {
    let Some(environment) = shared_environment() else { return };
    for calls in [Calls::Single, Calls::Batched(4)] {
        let Some(mut embedder) = load_embedder(environment, ModelSet::Default, calls) else { return };
        for picture in ReferencePicture::load_all(&environment.reference) {
            let batched = embed_known(&mut embedder, &picture);
            assert_eq!(batched.len(), picture.faces.len());
            for (face, known) in batched.iter().zip(&picture.faces) {
                let crop = FaceCrop::new(picture.pixels.frame(), known.landmarks);
                let alone = embedder.embed(&[crop]).unwrap().remove(0);
                assert!(cosine(&alone.vector, &face.vector) > 0.99999);
                assert_eq!(alone.sharpness, face.sharpness);
            }
        }
    }
}

#[test]
fn a_face_that_is_too_blurred_gets_no_vector_and_the_others_of_its_batch_get_theirs() {
    let Some(environment) = shared_environment() else { return };
    for calls in [Calls::Single, Calls::Batched(4)] {
        let Some(mut embedder) = load_embedder(environment, ModelSet::Default, calls) else { return };
        for picture in ReferencePicture::load_all(&environment.reference) {
            let all = embed_known(&mut embedder, &picture);
            let blurred = &all[0];
            let crop = |known: &ReferenceFace| FaceCrop {
                least_sharpness: blurred.sharpness * 1.01,
                ..FaceCrop::new(picture.pixels.frame(), known.landmarks)
            };
            let crops: Vec<FaceCrop<'_>> = picture.faces.iter().map(crop).collect();
            let some = embedder.embed(&crops).unwrap();
            assert_eq!((some.len(), some[0].vector.len()), (all.len(), 0));
            for (face, alone) in some.iter().zip(&all) {
                let is_sharp = alone.sharpness >= blurred.sharpness * 1.01;
                assert_eq!((face.sharpness, face.vector.is_empty()), (alone.sharpness, !is_sharp));
                assert!(!is_sharp || cosine(&face.vector, &alone.vector) > 0.99999);
            }
        }
    }
}

#[test]
fn a_batch_of_photos_gives_the_faces_of_each_alone() {
    let Some(environment) = shared_environment() else { return };
    let (Some(mut alone), Some(batched)) = (load_yunet(environment), load_yunet(environment)) else { return };
    let mut batched = batched.on_device(KernelDevice::cpu(), Bucket::new(4));
    let pictures = ReferencePicture::load_all(&environment.reference);
    let all = pictures.iter().chain(&pictures).chain(&pictures);
    let crops: Vec<Picture> = pictures
        .iter()
        .flat_map(|picture| [[4, 3], [16, 9]].map(|format| crop_to(picture.pixels.frame(), format)))
        .collect();
    let frames: Vec<_> =
        all.map(|picture| picture.pixels.frame()).chain(crops.iter().map(Picture::frame)).collect();
    let found = batched.detect(&frames, LONG_SIDE).unwrap();
    assert!(found.iter().all(|faces| !faces.is_empty()));
    assert_eq!(found.len(), frames.len());
    for (frame, together) in frames.iter().zip(&found) {
        let alone = alone.detect(&[*frame], LONG_SIDE).unwrap().remove(0);
        assert_eq!(alone.len(), together.len());
        for (alone, together) in alone.iter().zip(together) {
            assert!(alone.rect.iou(&together.rect) > 0.999 && (alone.score - together.score).abs() < 1e-4);
        }
    }
}

#[test]
fn texts_of_several_photos_in_one_call_are_those_of_each_photo_alone() {
    let Some(environment) = shared_environment() else { return };
    let Some(mut detector) = load_yunet(environment) else { return };
    let (Some(mut alone), Some(mut batched)) = (
        load_bib_reader(environment, Some(GateScope::All)),
        load_bib_reader_for(environment, Some(GateScope::All), Calls::Batched(8)),
    ) else {
        return;
    };
    let pattern = BibPattern::new("[A-Z]{0,2}[0-9]{2,5}[A-Z]?").unwrap();
    let pictures: Vec<Picture> = ReferencePicture::load_all(&environment.reference)
        .into_iter()
        .flat_map(with_smaller_copies)
        .collect();
    let frames: Vec<_> = pictures.iter().map(Picture::frame).collect();
    let faces = detector.detect(&frames, LONG_SIDE).unwrap();
    let requests: Vec<ReadRequest<'_>> = frames
        .iter()
        .zip(&faces)
        .map(|(frame, faces)| ReadRequest { frame: *frame, faces, pattern: &pattern })
        .collect();
    let together = batched.read(&requests).unwrap();
    assert_eq!(together.len(), requests.len());
    let mut bibs = 0;
    for (request, together) in requests.iter().zip(&together) {
        let alone = alone.read(&[*request]).unwrap().remove(0);
        check_same_texts(together, &alone);
        check_same_texts(&alone, together);
        bibs += together.iter().filter(|text| text.is_bib && text.confidence >= 0.9).count();
    }
    assert!(bibs >= 3, "{bibs} bibs: too few to compare");
}

/// The middle of a frame, in the format of other cameras.
fn crop_to(frame: Frame<'_>, [across, down]: [u32; 2]) -> Picture {
    let unit = (frame.width() / across).min(frame.height() / down);
    let size = Size { width: unit * across, height: unit * down };
    let (left, top) = ((frame.width() - size.width) / 2, (frame.height() - size.height) / 2);
    let window = frame.window(left, top, size).unwrap();
    let pixels = (0..size.height).flat_map(|y| window.row(y).iter().copied()).collect();
    Picture::new(pixels, size.width, size.height).unwrap()
}

/// Every text that is read with some confidence is among the others. Those at the least confidence may be dropped by one,
/// because a library adds up a batch in another order.
fn check_same_texts(texts: &[BibText], others: &[BibText]) {
    for text in texts.iter().filter(|text| text.confidence > 0.55) {
        let is_same =
            |other: &&BibText| other.text == text.text && other.quad.bounds().iou(&text.quad.bounds()) > 0.95;
        let other = others.iter().find(is_same).unwrap_or_else(|| panic!("{text:?} is not in {others:?}"));
        assert_eq!(other.is_bib, text.is_bib);
        assert!((other.confidence - text.confidence).abs() < 0.01, "{text:?} {other:?}");
    }
}

/// The picture, and copies of .8 and .6 of its size: other scales of torsos, other boxes of texts.
fn with_smaller_copies(picture: ReferencePicture) -> Vec<Picture> {
    let copy = |zoom: f32| {
        let side = |pixels: u32| (pixels as f32 * zoom).round() as u32;
        let frame = picture.pixels.frame();
        let size = Size { width: side(frame.width()), height: side(frame.height()) };
        Resizer::default().resize_frame(frame, ResizeTarget { size, filter: Filter::Bicubic })
    };
    let copies = [copy(0.8), copy(0.6)];
    std::iter::once(picture.pixels).chain(copies).collect()
}
