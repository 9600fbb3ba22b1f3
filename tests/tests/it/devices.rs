//! The device of the models.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use photofinish_servers::read_variable;
use photofinish_tests::harness::{Service, ServiceOptions, skip_or_fail, test_data};

use crate::shell::Shell;

/// Why `auto` does not take software Vulkan.
const ONLY_SOFTWARE: &str = "only software computes Vulkan here";

/// The libraries that set-up fetched for the CPU and for Vulkan, and software Vulkan.
struct Libraries {
    cpu: PathBuf,
    wgpu: PathBuf,
    /// Settings of software Vulkan.
    vulkan: [(&'static str, String); 3],
}

impl Libraries {
    fn find() -> Result<Self, String> {
        let (wgpu, vulkan) = read_variable("PHOTOFINISH_TEST_WEBGPU")
            .zip(read_variable("PHOTOFINISH_TEST_VULKAN"))
            .ok_or("there is no ONNX Runtime with WebGPU, or no software Vulkan")?;
        let cpu = test_data::find_runtime_library()?;
        let vulkan = [
            ("VK_DRIVER_FILES", format!("{vulkan}/lvp_icd.json")),
            ("MESA_SHADER_CACHE_DIR", format!("{vulkan}/cache")),
            ("LD_LIBRARY_PATH", vulkan),
        ];
        Ok(Self { cpu, wgpu: wgpu.into(), vulkan })
    }

    /// Makes a working folder that of a checkout after its set-up.
    fn link_into(&self, working: &Path) {
        let fetched = working.join(".photofinish");
        std::fs::create_dir(&fetched).expect("a folder");
        for (library, name) in [(&self.cpu, "runtime"), (&self.wgpu, "runtime-webgpu")] {
            let folder = library.canonicalize().expect("a library");
            symlink(folder.parent().expect("a library is in a folder"), fetched.join(name)).expect("a link");
        }
    }
}

#[test]
fn each_device_is_tried_with_the_library_that_set_up_fetched_for_it() {
    const TEST: &str = "each_device_is_tried_with_the_library_that_set_up_fetched_for_it";
    let (libraries, models) = match (Libraries::find(), test_data::find_models_dir()) {
        (Ok(libraries), Ok(models)) => (libraries, models.to_string_lossy().into_owned()),
        (Err(why), _) | (_, Err(why)) => return skip_or_fail(TEST, &why),
    };
    let shell = Shell::new();
    libraries.link_into(shell.path());
    let diagnose = |device: &str| {
        let mut settings = vec![
            ("PHOTOFINISH_DEVICE", device),
            ("PHOTOFINISH_MODELS_DIR", models.as_str()),
            // Nothing is measured.
            ("PHOTOFINISH_TEXT_PRECISION", "f32"),
        ];
        settings.extend(libraries.vulkan.iter().map(|(name, value)| (*name, value.as_str())));
        shell.run(&["doctor"], &settings).expect_success().to_owned()
    };
    let text = diagnose("wgpu");
    for part in [" .photofinish/runtime-webgpu/libonnxruntime.so", "wgpu (llvmpipe"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let text = diagnose("auto");
    let refusal = format!("wgpu refused: {ONLY_SOFTWARE}");
    for part in [" .photofinish/runtime/libonnxruntime.so", "cpu (the processor)", "cuda refused: ", &refusal]
    {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn readiness_and_metrics_say_why_a_device_is_not_used() {
    const TEST: &str = "readiness_and_metrics_say_why_a_device_is_not_used";
    let (libraries, options) = match (Libraries::find(), ServiceOptions::with_real_models()) {
        (Ok(libraries), Ok(options)) => (libraries, options),
        (Err(why), _) | (_, Err(why)) => return skip_or_fail(TEST, &why),
    };
    let options = options
        .without_setting("PHOTOFINISH_ONNXRUNTIME")
        .with_setting("PHOTOFINISH_DEVICE", "auto")
        .with_setting("PHOTOFINISH_TEXT_PRECISION", "f32");
    let options =
        libraries.vulkan.iter().fold(options, |options, (name, value)| options.with_setting(name, value));
    let service = Service::new_stopped(options, Arc::new(tempfile::tempdir().expect("a folder")));
    std::fs::create_dir(service.data_dir()).expect("an empty folder");
    libraries.link_into(&service.data_dir());
    service.restart();
    let partner = service.partner_with("");
    let ready = partner.get("/readyz").text();
    let metrics = partner.get(&format!("{}/metrics", service.origin())).text();
    for (device, reason) in [("cuda", "has no CUDA provider"), ("wgpu", ONLY_SOFTWARE)] {
        let (_, refusal) =
            ready.split_once(&format!("{device} refused: ")).unwrap_or_else(|| panic!("{ready}"));
        let refusal = refusal.split(';').next().expect("the first part");
        assert!(refusal.contains(reason), "{refusal} of {ready}");
        let is_said = metrics.lines().any(|line| {
            line.starts_with(&format!("photofinish_device_refused{{device=\"{device}\",reason=\""))
                && line.contains(reason)
                && line.ends_with(" 1")
        });
        assert!(is_said, "{device} is not refused in {metrics}");
    }
    let used = "photofinish_device_used{device=\"cpu\",name=\"the processor\"} 1";
    assert!(metrics.lines().any(|line| line == used), "{used} is not in {metrics}");
}

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
    assert!(refused.stderr.contains(ONLY_SOFTWARE), "{}", refused.stderr);
    let taken = shell.run(&["probe-device", "wgpu", &library, "--allow-software"], &settings);
    assert!(taken.expect_success().contains("llvmpipe"), "{}", taken.combined_output());
}
