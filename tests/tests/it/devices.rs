//! The device of the models.

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
