//! The results of photos: detections, previews and failures.

use std::sync::Arc;
use std::time::Duration;

use exif::{Tag, Value};
use image::ImageFormat;
use photofinish_kernels::image::frame::Frame;
use photofinish_models::fakes::{FakeModels, PANIC_BIB, paint_bib, paint_face};
use photofinish_models::traits::{
    BatchSizes, BibReader, FaceBox, FaceDetector, FaceEmbedder, Look, ModelError, ModelFactory, ModelIdentity,
};
use photofinish_pipeline::PipelineSettings;
use photofinish_store::model::album::{Grid, RecognitionMode};
use photofinish_store::model::object_key::ObjectRole;
use photofinish_store::model::photo::{
    BoundingBox, FailureReason, PhotoSize, PhotoState, TextIndexState, UnindexedReason,
};
use photofinish_store::traits::{LeaseKind, LeaseRequest};
use time::macros::datetime;

use crate::support::{
    LIMITS, PipelineFixture, album_config, encode_jpeg, encode_jpeg_with_orientation, exif_text,
    gradient_picture, runner_picture, test_settings, wait_until_running, with_exif,
};

/// Whether a box is within 1 % of the expected left, top, width and height.
fn is_near(found: &BoundingBox, expected: [f64; 4]) -> bool {
    let found = [found.left, found.top, found.width, found.height];
    found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 0.01)
}

#[test]
fn a_photo_becomes_detections_and_previews() {
    let fixture = PipelineFixture::new();
    let album = fixture.create_album(album_config());
    let mut large = gradient_picture(3000, 2000);
    paint_face(&mut large, 4711, [300, 200, 400]);
    paint_face(&mut large, 12, [1500, 200, 600]);
    paint_bib(&mut large, "A1204", [600, 1000]);
    paint_bib(&mut large, "HELLO", [1600, 1400]);
    let exif = [
        (Tag::Make, exif_text("Canon")),
        (Tag::Model, exif_text("Canon EOS R5")),
        (Tag::DateTimeOriginal, exif_text("2025:05:11 09:30:00")),
        (Tag::OffsetTimeOriginal, exif_text("+02:00")),
    ];
    let photo = fixture.upload_photos(album, &[with_exif(&encode_jpeg(&large), &exif)])[0];
    let report = fixture.process_album(album, FakeModels::default());
    assert!(report.drained && report.unfinished == 0 && report.given_back == 0, "{report:?}");

    let stored = fixture.load_photo(album, photo);
    assert_eq!((stored.state, stored.failure), (PhotoState::Ready, None));
    assert_eq!(stored.size, Some(PhotoSize { width: 3000, height: 2000 }));
    assert_eq!(stored.taken_at, Some(datetime!(2025-05-11 07:30:00 UTC)));
    assert_eq!(stored.camera.as_deref(), Some("Canon EOS R5"));
    let (faces, texts) = fixture.load_detections(album, photo);
    assert_eq!(faces.len(), 2);
    assert!(is_near(&faces[0].bounding_box, [0.5, 0.1, 0.2, 0.3]), "the largest comes first: {faces:?}");
    assert!(is_near(&faces[1].bounding_box, [0.1, 0.1, 0.1333, 0.2]));
    for face in &faces {
        assert_eq!((face.unindexed, face.confidence > 0.9), (None, true));
        let embedding = face.embedding.as_ref().unwrap();
        assert_eq!((embedding.model.as_str(), embedding.vector.len()), ("fake-embedder@1", 128));
    }
    let index_state =
        |text: &str| texts.iter().find(|found| found.text == text).map(|found| found.index_state);
    assert_eq!(index_state("A1204"), Some(TextIndexState::Indexed));
    assert_eq!(index_state("HELLO"), Some(TextIndexState::Unindexed(UnindexedReason::NotABib)));

    for (role, long_side) in [(ObjectRole::Preview, 2048), (ObjectRole::Thumbnail, 256)] {
        let file = fixture.read_object(&fixture.object_key(album, photo, role));
        let picture = image::load_from_memory_with_format(&file, ImageFormat::Jpeg).unwrap();
        assert_eq!(picture.width(), long_side);
        assert_eq!(picture.height(), (long_side * 2 + 1) / 3);
        assert!(!file.windows(4).any(|bytes| bytes == b"Exif"), "the camera's EXIF data is removed");
    }
}

#[test]
fn a_photo_with_more_runners_than_are_read_says_how_many_were_skipped() {
    let fixture = PipelineFixture::new();
    let album = fixture.create_album(album_config());
    let mut crowd = gradient_picture(1800, 1200);
    for (person, [left, side]) in [[100, 200], [500, 160], [900, 120], [1300, 80]].into_iter().enumerate() {
        paint_face(&mut crowd, person as u16 + 1, [left, 100, side]);
    }
    let skipped_of = |max_runners: usize| {
        let photo = fixture.upload_photos(album, &[encode_jpeg(&crowd)])[0];
        let settings = PipelineSettings { max_runners, ..test_settings() };
        let (models, blobs) = (Arc::new(FakeModels::default()), Arc::clone(&fixture.store.blobs));
        let pipeline = fixture.start_pipeline_with_settings(settings, models, blobs);
        fixture.wait_until_processed(album);
        pipeline.stop();
        let (faces, _) = fixture.load_detections(album, photo);
        assert!(faces.len() == 4 && faces.iter().all(|face| face.unindexed.is_none()), "selfies find all");
        fixture.load_photo(album, photo).skipped_runners
    };
    assert_eq!([4, 3, 1].map(skipped_of), [0, 1, 3]);
}

/// Sees small faces in small frames only, as a detector does that shrinks what it sees; in large frames they are traces.
struct ShortSightedModels;

struct ShortSighted(Box<dyn FaceDetector>);

impl FaceDetector for ShortSighted {
    fn detect(&mut self, frames: &[Frame<'_>], long_side: u32) -> Result<Vec<Vec<FaceBox>>, ModelError> {
        Ok(self.look(frames, long_side)?.into_iter().map(|look| look.faces).collect())
    }

    fn look(&mut self, frames: &[Frame<'_>], long_side: u32) -> Result<Vec<Look>, ModelError> {
        let found = self.0.detect(frames, long_side)?;
        let looks = frames.iter().zip(found).map(|(frame, found)| {
            let scale = long_side.min(frame.long_side()) as f32 / frame.long_side() as f32;
            let (faces, traces) = found.into_iter().partition(|face| face.rect.width() * scale >= 20.0);
            Look { faces, traces }
        });
        Ok(looks.collect())
    }

    fn identity(&self) -> &ModelIdentity {
        self.0.identity()
    }
}

impl ModelFactory for ShortSightedModels {
    fn create_face_detector(&self) -> Result<Box<dyn FaceDetector>, ModelError> {
        Ok(Box::new(ShortSighted(FakeModels::default().create_face_detector()?)))
    }

    fn create_face_embedder(&self) -> Result<Box<dyn FaceEmbedder>, ModelError> {
        FakeModels::default().create_face_embedder()
    }

    fn create_bib_reader(&self) -> Result<Box<dyn BibReader>, ModelError> {
        FakeModels::default().create_bib_reader()
    }

    fn batch_sizes(&self) -> BatchSizes {
        FakeModels::default().batch_sizes()
    }
}

#[test]
fn faces_that_the_first_look_only_suspects_are_found_by_a_closer_one() {
    let fixture = PipelineFixture::new();
    let album = fixture.create_album(album_config());
    let mut photo = gradient_picture(2000, 1500);
    for (person, place) in
        [[800, 300, 400], [100, 100, 32], [1900, 1400, 32], [1860, 60, 32]].iter().enumerate()
    {
        paint_face(&mut photo, person as u16 + 1, *place);
    }
    let photo = fixture.upload_photos(album, &[encode_jpeg(&photo)])[0];
    let blobs = Arc::clone(&fixture.store.blobs);
    let pipeline = fixture.start_pipeline_with(Arc::new(ShortSightedModels), blobs, Duration::from_secs(30));
    fixture.wait_until_processed(album);
    pipeline.stop();
    let (faces, _) = fixture.load_detections(album, photo);
    for expected in [
        [0.4, 0.2, 0.2, 0.2667],
        [0.05, 0.0667, 0.016, 0.0213],
        [0.95, 0.9333, 0.016, 0.0213],
        [0.93, 0.04, 0.016, 0.0213],
    ] {
        let found = faces.iter().filter(|face| is_near(&face.bounding_box, expected)).count();
        assert_eq!(found, 1, "{expected:?} in {faces:?}");
    }
    assert!(faces.len() == 4 && faces.iter().all(|face| face.unindexed.is_none()), "{faces:?}");
}

#[test]
fn small_photos_are_not_enlarged() {
    let fixture = PipelineFixture::new();
    let album = fixture.create_album(album_config());
    let photo = fixture.upload_photos(album, &[encode_jpeg(&gradient_picture(200, 100))])[0];
    fixture.process_album(album, FakeModels::default());
    for role in [ObjectRole::Preview, ObjectRole::Thumbnail] {
        let file = fixture.read_object(&fixture.object_key(album, photo, role));
        let picture = image::load_from_memory_with_format(&file, ImageFormat::Jpeg).unwrap();
        assert_eq!((picture.width(), picture.height()), (200, 100));
    }
}

#[test]
fn each_bad_file_fails_alone_with_its_reason() {
    let fixture = PipelineFixture::new();
    let album = fixture.create_album(album_config());
    let good = encode_jpeg(&runner_picture(7, "1234"));
    let mut huge_header =
        vec![0xff, 0xd8, 0xff, 0xc0, 0, 17, 8, 0xff, 0xff, 0xff, 0xff, 3, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11];
    huge_header.resize(44, 1);
    let mut large_file = good.clone();
    large_file.resize(LIMITS.max_file_bytes as usize + 1, 0);
    let files = [
        good.clone(),
        good[..good.len() / 2].to_vec(),
        good.clone(),
        Vec::new(),
        huge_header,
        b"%PDF-1.4 not a photo".to_vec(),
        large_file,
        encode_jpeg(&runner_picture(8, PANIC_BIB)),
        good,
    ];
    let photos = fixture.upload_photos(album, &files);
    let missing = fixture.upload_photos(album, &[encode_jpeg(&gradient_picture(64, 64))])[0];
    let key = fixture.object_key(album, missing, ObjectRole::Original);
    fixture.runtime.block_on(fixture.store.blobs.delete(&key)).unwrap();
    let pipeline = fixture.start_pipeline(FakeModels::default());
    let counts = fixture.wait_until_processed(album);
    assert!(pipeline.stop().drained);
    let reason = |i: usize| fixture.load_photo(album, photos[i]).failure;
    assert_eq!(reason(0), None);
    assert_eq!(reason(1), Some(FailureReason::CorruptImage));
    assert_eq!(reason(2), None);
    assert_eq!(reason(3), Some(FailureReason::UnsupportedFormat));
    assert_eq!(reason(4), Some(FailureReason::TooManyPixels));
    assert_eq!(reason(5), Some(FailureReason::UnsupportedFormat));
    assert_eq!(reason(6), Some(FailureReason::TooLarge));
    assert_eq!(reason(7), Some(FailureReason::ProcessingCrashed));
    assert_eq!(reason(8), None);
    assert_eq!(fixture.load_photo(album, missing).failure, Some(FailureReason::MissingObject));
    assert_eq!((counts.ready, counts.failed), (3, 7));
}

#[test]
fn all_eight_orientations_give_the_same_photo() {
    let fixture = PipelineFixture::new();
    let album = fixture.create_album(album_config());
    let picture = runner_picture(99, "2025");
    let files: Vec<Vec<u8>> = (1..=8).map(|exif| encode_jpeg_with_orientation(&picture, exif)).collect();
    let photos = fixture.upload_photos(album, &files);
    fixture.process_album(album, FakeModels::default());
    for (i, photo) in photos.iter().enumerate() {
        let (faces, texts) = fixture.load_detections(album, *photo);
        assert_eq!((faces.len(), texts.len()), (1, 1), "orientation {}", i + 1);
        assert_eq!(texts[0].text, "2025");
        assert!(
            is_near(&faces[0].bounding_box, [0.25, 0.125, 0.1333, 0.2]),
            "orientation {}: {faces:?}",
            i + 1
        );
        assert!(
            is_near(&texts[0].bounding_box, [0.2667, 0.525, 0.1067, 0.05]),
            "orientation {}: {texts:?}",
            i + 1
        );
        let stored = fixture.load_photo(album, *photo);
        assert_eq!(stored.size, Some(PhotoSize { width: 1200, height: 800 }));
    }
}

#[test]
fn batched_equals_single() {
    let single = FakeModels::default();
    let batched = FakeModels { batch_sizes: Some(BatchSizes { detect: 4, embed: 8, read: 4 }), ..single };
    let fixture = PipelineFixture::new();
    let mut files: Vec<Vec<u8>> =
        (0..12_u16).map(|i| encode_jpeg(&runner_picture(i, &format!("{}", 1000 + i)))).collect();
    // One photo panics in its batch, which must not change the results of the others.
    files[5] = encode_jpeg(&runner_picture(5, PANIC_BIB));
    files[7] = b"not a photo".to_vec();
    let results: Vec<_> = [single, batched]
        .into_iter()
        .map(|models| {
            let album = fixture.create_album(album_config());
            let photos = fixture.upload_photos(album, &files);
            fixture.process_album(album, models);
            photos
                .iter()
                .map(|photo| {
                    (fixture.load_photo(album, *photo).failure, fixture.load_detections(album, *photo))
                })
                .collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0][5].0, Some(FailureReason::ProcessingCrashed));
    assert_eq!(results[0].iter().filter(|(failure, _)| failure.is_none()).count(), 10);
}

#[test]
fn recognition_that_an_album_disables_is_not_run() {
    let fixture = PipelineFixture::new();
    let file = [encode_jpeg(&runner_picture(7, "1234"))];
    for (face, text) in [(true, false), (false, true), (false, false)] {
        let mut config = album_config();
        (config.face.enabled, config.text.enabled) = (face, text);
        let album = fixture.create_album(config);
        let photo = fixture.upload_photos(album, &file)[0];
        fixture.process_album(album, FakeModels::default());
        let (faces, texts) = fixture.load_detections(album, photo);
        assert_eq!((faces.len(), texts.len()), (usize::from(face), usize::from(text)));
        assert_eq!(fixture.load_photo(album, photo).state, PhotoState::Ready);
        fixture.read_object(&fixture.object_key(album, photo, ObjectRole::Preview));
    }
}

#[test]
fn a_grid_finds_what_is_too_small_for_the_whole_and_everything_once() {
    // When the picture is reduced to 2048 pixels its marks are too small for the fakes; in cells they keep their size.
    let mut picture = gradient_picture(4000, 2600);
    for (i, left) in (0..8_u32).map(|i| (i, i * 480 + 60)) {
        paint_face(&mut picture, 100 + i as u16, [left, 300, 24]);
        paint_bib(&mut picture, &format!("{}", 1000 + i), [left, 700]);
    }
    paint_face(&mut picture, 9, [1200, 1200, 1300]);
    let file = [encode_jpeg(&picture)];
    let fixture = PipelineFixture::new();
    let grid = Grid { rows: 2, columns: 3, cell_width: 2000, cell_height: 2000 };
    let found: Vec<(usize, usize)> = [None, Some(grid)]
        .into_iter()
        .map(|grid| {
            let mut config = album_config();
            for recognition in [&mut config.face, &mut config.text] {
                recognition.grid = grid;
                recognition.mode =
                    if grid.is_some() { RecognitionMode::Grid } else { RecognitionMode::Photo };
            }
            let album = fixture.create_album(config);
            let photo = fixture.upload_photos(album, &file)[0];
            fixture.process_album(album, FakeModels::default());
            let (faces, texts) = fixture.load_detections(album, photo);
            if grid.is_some() {
                assert!(
                    is_near(&faces[0].bounding_box, [0.3, 0.4615, 0.325, 0.5]),
                    "a face across cells: {:?}",
                    faces[0]
                );
                let mut bibs: Vec<&str> = texts.iter().map(|text| text.text.as_str()).collect();
                bibs.sort_unstable();
                assert_eq!(bibs, ["1000", "1001", "1002", "1003", "1004", "1005", "1006", "1007"]);
            }
            (faces.len(), texts.len())
        })
        .collect();
    assert_eq!(found[1], (9, 8));
    assert!(found[0].0 < 9, "{found:?}: everything is found without a grid, so the test proves nothing");
}

#[test]
fn a_crash_suspect_is_retried_and_fails_after_its_last_attempt() {
    let fixture = PipelineFixture::new();
    let album = fixture.create_album(album_config());
    let photo = fixture.upload_photos(album, &[encode_jpeg(&runner_picture(3, "55"))])[0];
    // Three processes crash with the photo leased.
    for _ in 0..3 {
        let request = |kind| LeaseRequest { limit: 1, ttl: Duration::from_secs(60), kind };
        fixture.runtime.block_on(async {
            let fresh = fixture.store.queue.lease(request(LeaseKind::Fresh)).await.unwrap();
            let suspect = fixture.store.queue.lease(request(LeaseKind::CrashSuspect)).await.unwrap();
            assert_eq!(fresh.len() + suspect.len(), 1);
            fixture.store.embedded().unwrap().reclaim_leases().await.unwrap();
        });
    }
    fixture.process_album(album, FakeModels::default());
    assert_eq!(fixture.load_photo(album, photo).failure, Some(FailureReason::ProcessingCrashed));
}

#[test]
fn a_confirmed_photo_is_leased_when_the_pipeline_is_woken() {
    let fixture = PipelineFixture::new();
    let album = fixture.create_album(album_config());
    let pipeline = fixture.start_pipeline(FakeModels::default());
    wait_until_running(&pipeline);
    let photo = fixture.upload_photos(album, &[encode_jpeg(&runner_picture(1, "77"))])[0];
    pipeline.wake();
    fixture.wait_until_processed(album);
    assert_eq!(fixture.load_photo(album, photo).state, PhotoState::Ready);
    pipeline.stop();
}

#[test]
fn damaged_exif_does_not_fail_a_photo() {
    let fixture = PipelineFixture::new();
    let album = fixture.create_album(album_config());
    let mut file =
        with_exif(&encode_jpeg(&runner_picture(1, "77")), &[(Tag::Orientation, Value::Short(vec![1]))]);
    // The offset of the first EXIF directory is beyond the end of the file.
    file[16..20].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff]);
    let photo = fixture.upload_photos(album, &[file])[0];
    fixture.process_album(album, FakeModels::default());
    assert_eq!(fixture.load_photo(album, photo).failure, None);
}
