//! A few real photos through the whole service with every network on Vulkan, which the processor computes here, beside the
//! service on the processor.

use std::path::Path;
use std::time::Duration;

use photofinish_servers::read_variable;
use photofinish_store::conformance::test_settings;
use photofinish_store::model::ids::{AlbumId, PhotoId};
use photofinish_store::model::photo::{BoundingBox, DetectedFace, TextIndexState};
use photofinish_store::{Store, StoreSettings};
use photofinish_tests::harness::{Partner, Service, ServiceOptions, skip_or_fail, test_data};

/// Photos of 720 x 480 pixels, of runners with faces and bibs: few and small, because the processor takes a second for
/// each network.
const PHOTOS: [&str; 3] = [
    "rbnr/datasets/set1_org/set1_01.JPG",
    "rbnr/datasets/set1_org/set1_02.JPG",
    "rbnr/datasets/set1_org/set1_05.JPG",
];

/// How long a service may take to stop.
const STOP_LIMIT: Duration = Duration::from_secs(60);

const MIN_OVERLAP: f64 = 0.9;
const MIN_COSINE: f32 = 0.999;

/// What a service found in a photo.
struct Found {
    faces: Vec<DetectedFace>,
    /// With whether it is searched by.
    texts: Vec<(String, bool)>,
}

#[test]
fn vulkan_finds_the_faces_and_bibs_that_the_processor_finds() {
    const TEST: &str = "vulkan_finds_the_faces_and_bibs_that_the_processor_finds";
    let (library, vulkan) =
        match (read_variable("PHOTOFINISH_TEST_WEBGPU"), read_variable("PHOTOFINISH_TEST_VULKAN")) {
            (Some(library), Some(vulkan)) => (library, vulkan),
            _ => return skip_or_fail(TEST, "there is no ONNX Runtime with WebGPU, or no software Vulkan"),
        };
    let options = match ServiceOptions::with_real_models() {
        Ok(options) => options.with_setting("PHOTOFINISH_ONNXRUNTIME", library),
        Err(why) => return skip_or_fail(TEST, &why),
    };
    let Some(photos) = test_data::shared_photos_dir(TEST) else { return };
    let options = |device: &str| {
        let options = options.clone();
        options
            .with_setting("PHOTOFINISH_DEVICE", device)
            // It is of the CPU alone, and finds other texts in a few cases.
            .with_setting("PHOTOFINISH_LIGHT_TEXT_DETECTOR", "off")
            // Nothing is measured: shaders of a second precision take a minute to compile here.
            .with_setting("PHOTOFINISH_TEXT_PRECISION", "f32")
            .with_setting("LD_LIBRARY_PATH", vulkan.as_str())
            .with_setting("VK_DRIVER_FILES", format!("{vulkan}/lvp_icd.json"))
            .with_setting("MESA_SHADER_CACHE_DIR", format!("{vulkan}/cache"))
    };
    let expected = find(options("cpu"), "cpu (", &photos);
    let found = find(options("wgpu"), "wgpu (llvmpipe", &photos);
    assert!(expected.iter().any(|photo| !photo.faces.is_empty()), "there is a face to compare");
    assert!(expected.iter().flat_map(|photo| &photo.texts).any(|(_, is_bib)| *is_bib), "there is a bib");
    let mut vectors = 0;
    for ((file, expected), found) in PHOTOS.iter().zip(&expected).zip(&found) {
        assert_eq!(found.texts, expected.texts, "{file}");
        assert_eq!(found.faces.len(), expected.faces.len(), "{file}");
        for face in &expected.faces {
            vectors += usize::from(compare(file, face, &found.faces));
        }
    }
    assert!(vectors > 0, "there is a vector to compare");
}

/// The costs of an album.
fn costs_by_stage(partner: &Partner, album: &str) -> Vec<serde_json::Value> {
    let today = time::OffsetDateTime::now_utc().date();
    let (from, to) = (today.previous_day().expect("a day"), today.next_day().expect("a day"));
    let days = serde_json::json!({ "from": from.to_string(), "to": to.to_string(), "albumId": album });
    partner.call_ok("/usage/costs", &days)["rows"].as_array().expect("rows").clone()
}

/// Uploads the photos to a service on a device, and returns what it found in each.
fn find(options: ServiceOptions, device: &str, photos: &Path) -> Vec<Found> {
    let service = Service::start(options);
    let partner = service.partner();
    let ready = partner.get("/readyz").text();
    assert!(ready.contains(device), "{ready}");
    let album = partner.create_album("Vulkan");
    let upload = |file: &&str| {
        let bytes = std::fs::read(photos.join("files").join(file)).expect("a photo");
        partner.upload_photo(&album, file, &bytes)
    };
    let ids: Vec<String> = PHOTOS.iter().map(upload).collect();
    let progress = partner.wait_until_idle(&album);
    assert_eq!(progress["ready"], PHOTOS.len(), "{progress}");
    assert!(service.is_alive());
    let costs = costs_by_stage(&partner, &album);
    let device_time =
        |stage: &str| costs.iter().find(|row| row["stage"] == stage).map(|row| &row["gpuSeconds"]);
    let is_device = device.starts_with("wgpu");
    for stage in ["detect", "read"] {
        let seconds = device_time(stage).and_then(serde_json::Value::as_f64);
        assert_eq!(seconds > Some(0.0), is_device, "{stage}: {costs:?}");
    }
    let folder = service.data_dir();
    let exit = service.terminate(STOP_LIMIT);
    assert_eq!(exit.code, Some(0), "it stops with its sessions freed: {exit:?}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(read_detections(&folder, &album, &ids))
}

/// Reads faces with their vectors, which no response has, from the database of a service that has ended.
async fn read_detections(folder: &Path, album: &str, ids: &[String]) -> Vec<Found> {
    let database_url = format!("sqlite:{}", folder.join("photofinish.sqlite").display());
    let settings = StoreSettings { database_url, ..test_settings(folder) };
    let store = Store::open(settings).await.expect("the database");
    let album = AlbumId(album.parse().expect("an id"));
    let mut found = Vec::new();
    for id in ids {
        let id = PhotoId(id.parse().expect("an id"));
        let (faces, texts) = store.photos.get_detections(album, id).await.expect("detections");
        let mut texts: Vec<(String, bool)> =
            texts.into_iter().map(|text| (text.text, text.index_state == TextIndexState::Indexed)).collect();
        texts.sort();
        found.push(Found { faces, texts });
    }
    store.close().await;
    found
}

/// Compares a face with the one at its place. Returns whether they have vectors: faces that are too small, turned away or
/// blurred have none, on either device.
#[track_caller]
fn compare(file: &str, face: &DetectedFace, candidates: &[DetectedFace]) -> bool {
    let best = candidates
        .iter()
        .max_by(|a, b| overlap(face, a).total_cmp(&overlap(face, b)))
        .unwrap_or_else(|| panic!("{file}: no face at {:?}", face.bounding_box));
    let iou = overlap(face, best);
    assert!(iou >= MIN_OVERLAP, "{file}: {:?} overlaps {:?} by {iou}", face.bounding_box, best.bounding_box);
    assert_eq!(face.unindexed, best.unindexed, "{file}");
    assert_eq!(face.embedding.is_some(), best.embedding.is_some(), "{file}: {:?}", face.bounding_box);
    let (Some(a), Some(b)) = (&face.embedding, &best.embedding) else { return false };
    assert_eq!((&a.model, a.vector.len()), (&b.model, b.vector.len()));
    let cosine: f32 = a.vector.iter().zip(&b.vector).map(|(a, b)| a * b).sum();
    assert!(cosine > MIN_COSINE, "{file}: the cosine of two vectors of a face is {cosine}");
    true
}

/// The area that both boxes have, divided by that which either has.
fn overlap(a: &DetectedFace, b: &DetectedFace) -> f64 {
    let (a, b) = (a.bounding_box, b.bounding_box);
    let shared = |start_a: f64, size_a: f64, start_b: f64, size_b: f64| {
        ((start_a + size_a).min(start_b + size_b) - start_a.max(start_b)).max(0.0)
    };
    let both = shared(a.left, a.width, b.left, b.width) * shared(a.top, a.height, b.top, b.height);
    let area = |found: BoundingBox| found.width * found.height;
    both / (area(a) + area(b) - both)
}
