//! The device of the models.

use photofinish_servers::read_variable;
use photofinish_tests::harness::{skip_or_fail, test_data};

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
    let (library, vulkan) =
        match (read_variable("PHOTOFINISH_TEST_WEBGPU"), read_variable("PHOTOFINISH_TEST_VULKAN")) {
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
