//! The device of the models.

use std::path::Path;

use photofinish_tests::harness::{Service, ServiceOptions, skip_or_fail, test_data};
use serde_json::Value;

use crate::shell::Shell;

#[test]
fn a_device_that_is_demanded_and_not_there_is_a_sentence() {
    const TEST: &str = "a_device_that_is_demanded_and_not_there_is_a_sentence";
    let (runtime, models) = match (test_data::find_runtime_library(), test_data::find_models_dir()) {
        (Ok(runtime), Ok(models)) => (runtime, models),
        (Err(why), _) | (_, Err(why)) => return skip_or_fail(TEST, &why),
    };
    let (runtime, models) = (runtime.to_string_lossy().into_owned(), models.to_string_lossy().into_owned());
    let shell = Shell::new();
    let run = |device: &str, arguments: &[&str]| {
        let settings = [
            ("PHOTOFINISH_ONNXRUNTIME", runtime.as_str()),
            ("PHOTOFINISH_MODELS_DIR", models.as_str()),
            ("PHOTOFINISH_DEVICE", device),
        ];
        shell.run(arguments, &settings)
    };
    // The library that set-up fetches computes on the CPU alone.
    for (device, provider) in [("cuda", "CUDA"), ("wgpu", "WebGPU")] {
        for arguments in [&["doctor"][..], &["all", "--listen", "127.0.0.1:0"]] {
            let output = run(device, arguments);
            let text = output.combined_output();
            assert_eq!(output.code, Some(1), "{device} {arguments:?}: {text}");
            assert!(text.contains(&format!("has no {provider} provider")), "{text}");
            assert!(!text.contains("panicked"), "{text}");
        }
    }
    // Where none is demanded, each is named with its reason, and the processor is used.
    let text = run("auto", &["doctor"]).combined_output();
    for reason in ["cpu (the processor)", "cuda refused: ", "wgpu refused: "] {
        assert!(text.contains(reason), "{reason} is not in {text}");
    }
}

#[test]
fn software_vulkan_is_used_only_when_it_is_demanded() {
    const TEST: &str = "software_vulkan_is_used_only_when_it_is_demanded";
    let (library, vulkan) = match (variable("PHOTOFINISH_TEST_WEBGPU"), variable("PHOTOFINISH_TEST_VULKAN")) {
        (Some(library), Some(vulkan)) => (library, vulkan),
        _ => return skip_or_fail(TEST, "there is no ONNX Runtime with WebGPU, or no software Vulkan"),
    };
    let shell = Shell::new();
    let driver = format!("{vulkan}/lvp_icd.json");
    let settings = [("LD_LIBRARY_PATH", vulkan.as_str()), ("VK_DRIVER_FILES", driver.as_str())];
    let refused = shell.run(&["probe-device", "wgpu", &library], &settings);
    assert_eq!(refused.code, Some(1), "{}", refused.combined_output());
    assert!(refused.stderr.contains("only software computes Vulkan here"), "{}", refused.stderr);
    let taken = shell.run(&["probe-device", "wgpu", &library, "--allow-software"], &settings);
    assert!(taken.expect_success().contains("llvmpipe"), "{}", taken.combined_output());
}

/// What a service finds in a few photos: faces and texts of each, and what a search by one of them scores.
struct Findings {
    faces: Vec<Vec<[f64; 4]>>,
    texts: Vec<Vec<String>>,
    scores: Vec<f64>,
}

fn find(options: ServiceOptions, photos: &Path, files: &[String]) -> Findings {
    let service = Service::start(options);
    let partner = service.partner();
    let album = partner.create_album("Race");
    let read = |file: &String| std::fs::read(photos.join("files").join(file)).expect("a photo");
    let ids: Vec<String> = files.iter().map(|file| partner.upload_photo(&album, file, &read(file))).collect();
    let progress = partner.wait_until_idle(&album);
    assert_eq!(progress["ready"], files.len(), "{progress} {}", service.log());
    let details: Vec<Value> = ids.iter().map(|id| partner.get_photo(&album, id)).collect();
    let list = |photo: &Value, name: &str| photo[name].as_array().cloned().unwrap_or_default();
    let sides = |face: &Value| {
        ["left", "top", "width", "height"].map(|side| face["boundingBox"][side].as_f64().expect("a number"))
    };
    let texts = |photo: &Value| {
        let mut texts: Vec<String> =
            list(photo, "texts").iter().map(|text| text["text"].to_string()).collect();
        texts.sort();
        texts
    };
    let hits = partner.search_by_selfie(&album, &read(&files[0]));
    Findings {
        faces: details.iter().map(|photo| list(photo, "faces").iter().map(sides).collect()).collect(),
        texts: details.iter().map(texts).collect(),
        scores: hits.iter().filter_map(|hit| hit["confidence"].as_f64()).collect(),
    }
}

fn iou(a: &[f64; 4], b: &[f64; 4]) -> f64 {
    let overlap =
        |axis: usize| ((a[axis] + a[axis + 2]).min(b[axis] + b[axis + 2]) - a[axis].max(b[axis])).max(0.0);
    let shared = overlap(0) * overlap(1);
    shared / (a[2] * a[3] + b[2] * b[3] - shared)
}

#[test]
fn photos_are_read_on_vulkan_as_on_the_processor() {
    const TEST: &str = "photos_are_read_on_vulkan_as_on_the_processor";
    let Some(photos) = test_data::shared_photos_dir(TEST) else { return };
    let (library, vulkan) = match (variable("PHOTOFINISH_TEST_WEBGPU"), variable("PHOTOFINISH_TEST_VULKAN")) {
        (Some(library), Some(vulkan)) => (library, vulkan),
        _ => return skip_or_fail(TEST, "there is no ONNX Runtime with WebGPU, or no software Vulkan"),
    };
    let options = match ServiceOptions::with_real_models() {
        Ok(options) => options.with_setting("PHOTOFINISH_TEXT_PRECISION", "f32"),
        Err(why) => return skip_or_fail(TEST, &why),
    };
    let rows = test_data::read_label_rows(&photos, "bibs.csv");
    let files: Vec<String> = rows.into_iter().take(2).map(|row| row[0].clone()).collect();
    let expected = find(options.clone().with_setting("PHOTOFINISH_DEVICE", "cpu"), &photos, &files);
    let on_vulkan = options
        .with_setting("PHOTOFINISH_DEVICE", "wgpu")
        .with_setting("PHOTOFINISH_ONNXRUNTIME", library)
        .with_setting("VK_DRIVER_FILES", format!("{vulkan}/lvp_icd.json"))
        .with_setting("LD_LIBRARY_PATH", vulkan);
    let found = find(on_vulkan, &photos, &files);
    assert!(expected.faces.iter().all(|faces| !faces.is_empty()) && !expected.scores.is_empty());
    for (found, expected) in found.faces.iter().zip(&expected.faces) {
        assert_eq!(found.len(), expected.len());
        let is_found = |face: &[f64; 4]| found.iter().any(|other| iou(face, other) > 0.9);
        assert!(expected.iter().all(is_found), "{found:?}, expected {expected:?}");
    }
    assert_eq!(found.texts, expected.texts);
    assert_eq!(found.scores.len(), expected.scores.len());
    for (found, expected) in found.scores.iter().zip(&expected.scores) {
        assert!((found - expected).abs() < 1.0, "{found}, expected {expected}");
    }
}

#[expect(clippy::disallowed_methods, reason = "the environment tells tests where set-up put its files")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
