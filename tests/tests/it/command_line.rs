//! The other commands, and the settings.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use photofinish_tests::harness::{Service, ServiceOptions, binary_path, skip_or_fail, test_data};

use crate::shell::Shell;

#[test]
fn every_problem_of_the_settings_is_listed_at_once() {
    let shell = Shell::new();
    let settings = [
        ("PHOTOFINISH_LISTEN", "nowhere"),
        ("PHOTOFINISH_ENVIRONMENT", "moon"),
        ("PHOTOFINISH_DEVICE", "abacus"),
        ("PHOTOFINISH_STORAGE_URL", "ftp://example.com"),
        ("PHOTOFINISH_DATABASE_URL", "mysql://u:hidden-word@example.com/db"),
        ("PHOTOFINISH_PUBLIC_URL", "not a url"),
    ];
    for role in [["all"], ["serve"], ["work"], ["config"], ["doctor"], ["migrate"]] {
        let output = shell.run(&role, &settings);
        assert_eq!(output.code, Some(1), "{role:?}: {}", output.combined_output());
        for (name, _) in settings {
            assert!(output.stderr.contains(name), "{role:?} does not name {name}: {}", output.stderr);
        }
        assert!(
            !output.combined_output().contains("hidden-word"),
            "a password is printed: {}",
            output.stderr
        );
        assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
    }
}

#[test]
fn config_prints_the_effective_settings_with_secrets_redacted() {
    let shell = Shell::new();
    let settings = [("PHOTOFINISH_ENVIRONMENT", "sandbox"), ("PHOTOFINISH_MAX_PHOTO_MB", "12")];
    let output = shell.run(&["config", "--listen", "127.0.0.1:9999"], &settings);
    let lines: Vec<&str> = output.expect_success().lines().collect();
    for line in [
        "PHOTOFINISH_LISTEN=127.0.0.1:9999",
        "PHOTOFINISH_ENVIRONMENT=sandbox",
        "PHOTOFINISH_MAX_PHOTO_MB=12",
    ] {
        assert!(lines.contains(&line), "{line} is not in {lines:?}");
    }
    assert!(
        lines.iter().any(|line| line.starts_with("PHOTOFINISH_PUBLIC_URL=http://127.0.0.1:9999")),
        "{lines:?}"
    );
    let names: Vec<&str> = lines.iter().filter_map(|line| line.split('=').next()).collect();
    for name in ["DATA_DIR", "DATABASE_URL", "STORAGE_URL", "QUEUE_URL", "MODELS_DIR", "DEVICE"] {
        assert!(names.contains(&format!("PHOTOFINISH_{name}").as_str()), "{name} is not in {names:?}");
    }
}

#[test]
fn a_password_in_the_public_url_is_refused_and_not_printed() {
    let shell = Shell::new();
    let name = "PHOTOFINISH_PUBLIC_URL";
    for url in ["https://user:hidden-word@example.com", "https://hidden-word@example.com/?hidden-word"] {
        for command in [&["config"][..], &["doctor"], &["migrate"], &["all", "--listen", "127.0.0.1:0"]] {
            let output = shell.run(command, &[(name, url)]);
            assert_eq!(output.code, Some(1), "{command:?}: {}", output.combined_output());
            assert!(output.stderr.contains(name), "{command:?}: {}", output.stderr);
            assert!(!output.combined_output().contains("hidden-word"), "{}", output.combined_output());
        }
        let flag = shell.run(&["config", "--public-url", url], &[]);
        assert_eq!(flag.code, Some(1), "{}", flag.combined_output());
        assert!(!flag.combined_output().contains("hidden-word"), "{}", flag.combined_output());
    }
}

#[test]
fn links_that_nobody_could_follow_are_refused_with_a_bucket_too() {
    let shell = Shell::new();
    let settings = [
        ("PHOTOFINISH_ENVIRONMENT", "production"),
        ("PHOTOFINISH_LISTEN", "0.0.0.0:8080"),
        ("PHOTOFINISH_STORAGE_URL", "s3://photos"),
    ];
    for command in [&["all"][..], &["serve"], &["doctor"], &["account", "list"]] {
        let output = shell.run(command, &settings);
        assert_eq!(output.code, Some(1), "{command:?}: {}", output.combined_output());
        let problem = "PHOTOFINISH_PUBLIC_URL is missing";
        assert!(output.stderr.contains(problem), "{command:?}: {}", output.stderr);
    }
    shell.run(&["migrate"], &settings).expect_success();
}

#[test]
fn migrate_makes_a_database_and_can_be_repeated() {
    let shell = Shell::new();
    shell.run(&["migrate"], &[]).expect_success();
    assert!(shell.path().join("photofinish.sqlite").is_file());
    shell.run(&["migrate"], &[]).expect_success();
}

#[test]
fn commands_keep_the_data_folder_for_its_owner_alone() {
    let shell = Shell::new();
    shell.run(&["migrate"], &[]).expect_success();
    std::fs::set_permissions(shell.path(), Permissions::from_mode(0o755)).expect("permissions");
    shell.run(&["sweep"], &[]).expect_success();
    let mut paths = vec![shell.path().to_owned()];
    let entries = std::fs::read_dir(shell.path()).expect("a data folder");
    paths.extend(entries.map(|entry| entry.expect("an entry").path()));
    assert!(paths.len() > 4, "folder, database, objects and secrets: {paths:?}");
    for path in paths {
        let mode = std::fs::metadata(&path).expect("an entry").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", path.display());
    }
}

#[test]
fn secrets_are_readable_by_their_owner_alone() {
    let shell = Shell::new();
    shell.run(&["migrate"], &[]).expect_success();
    shell.run(&["sweep"], &[]).expect_success();
    let secrets: Vec<PathBuf> = std::fs::read_dir(shell.path().join("secrets"))
        .expect("secrets are made at first start")
        .map(|entry| entry.expect("an entry").path())
        .collect();
    assert!(!secrets.is_empty());
    for secret in secrets {
        let mode = std::fs::metadata(&secret).expect("a file").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{}: {mode:o}", secret.display());
    }
}

#[test]
fn doctor_shows_how_many_files_may_be_open_and_the_connections_that_allows() {
    let shell = Shell::new();
    let limits = std::fs::read_to_string("/proc/self/limits").expect("limits of this process");
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("a limit");
    let hard: u64 = limit.split_whitespace().nth(1).expect("soft and hard").parse().expect("a number");
    let output = shell.run(&["doctor"], &[]).combined_output();
    let line = output.lines().find(|line| line.contains("open files")).unwrap_or_else(|| panic!("{output}"));
    assert!(line.contains(&format!("{hard} allowed")), "{line}");
    assert!(line.contains(" connections, ") && line.contains(" from one address"), "{line}");

    let lowered = shell.run_after("ulimit -n 1500; ulimit -Sn 600", &["doctor"]).combined_output();
    assert!(lowered.contains("1500 allowed, raised from 600"), "{lowered}");
    let too_low = shell.run_after("ulimit -n 400", &["doctor"]);
    assert_eq!(too_low.code, Some(1), "{}", too_low.combined_output());
    assert!(
        too_low.combined_output().contains("400 allowed, must be at least"),
        "{}",
        too_low.combined_output()
    );
}

#[test]
fn doctor_and_start_warn_of_settings_that_need_more_memory_than_there_is() {
    let budget = ("PHOTOFINISH_PIXEL_BUDGET_MB", "900000");
    let output = Shell::new().run(&["doctor"], &[("PHOTOFINISH_MODELS", "fake"), budget]);
    let text = output.expect_success();
    let line = text.lines().find(|line| line.contains(" memory ")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.starts_with("ok ") && line.contains("WARNING: "), "{line}");
    assert!(line.contains("900000 for PHOTOFINISH_PIXEL_BUDGET_MB"), "{line}");

    let options = ServiceOptions::with_fake_models().with_setting(budget.0, budget.1);
    let log = Service::start(options).log();
    for part in ["may need more memory than it may use", "limit_mb", "900000 for PHOTOFINISH_PIXEL_BUDGET_MB"]
    {
        assert!(log.contains(part), "{part} is not in {log}");
    }
}

#[test]
fn doctor_and_start_name_missing_files_without_a_panic() {
    let shell = Shell::new();
    let nothing = shell.path().join("nothing").to_string_lossy().into_owned();
    let runtime = test_data::find_runtime_library().map(|path| path.to_string_lossy().into_owned());
    let mut cases = vec![(
        [("PHOTOFINISH_ONNXRUNTIME", nothing.clone()), ("PHOTOFINISH_MODELS_DIR", nothing.clone())],
        "ONNX Runtime",
    )];
    let fake_library = shell.path().join("libonnxruntime.so");
    std::fs::write(&fake_library, b"no library").expect("a file");
    let fake_library = fake_library.to_string_lossy().into_owned();
    cases.push((
        [("PHOTOFINISH_ONNXRUNTIME", fake_library), ("PHOTOFINISH_MODELS_DIR", nothing.clone())],
        "libonnxruntime.so",
    ));
    if let Ok(runtime) = runtime {
        cases.push(([("PHOTOFINISH_ONNXRUNTIME", runtime), ("PHOTOFINISH_MODELS_DIR", nothing)], "model"));
    }
    for (settings, word) in cases {
        let settings: Vec<(&str, &str)> =
            settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        for arguments in [&["doctor"][..], &["all", "--listen", "127.0.0.1:0"]] {
            let output = shell.run(arguments, &settings);
            assert_eq!(output.code, Some(1), "{arguments:?}: {}", output.combined_output());
            assert!(
                output.combined_output().contains(word),
                "{arguments:?} does not mention {word}: {}",
                output.combined_output()
            );
            assert!(!output.combined_output().contains("panicked"), "{}", output.combined_output());
        }
    }
}

#[test]
fn doctor_succeeds_with_fake_models() {
    let shell = Shell::new();
    let output = shell.run(&["doctor"], &[("PHOTOFINISH_MODELS", "fake")]);
    output.expect_success();
    for part in ["database", "storage"] {
        assert!(output.stdout.contains(part), "{part} is not in {}", output.stdout);
    }
}

#[test]
fn doctor_and_models_verify_succeed_with_real_models() {
    const TEST: &str = "doctor_and_models_verify_succeed_with_real_models";
    let (runtime, models) = match (test_data::find_runtime_library(), test_data::find_models_dir()) {
        (Ok(runtime), Ok(models)) => (runtime, models),
        (Err(why), _) | (_, Err(why)) => return skip_or_fail(TEST, &why),
    };
    let shell = Shell::new();
    let (runtime, models) = (runtime.to_string_lossy().into_owned(), models.to_string_lossy().into_owned());
    let settings =
        [("PHOTOFINISH_ONNXRUNTIME", runtime.as_str()), ("PHOTOFINISH_MODELS_DIR", models.as_str())];
    shell.run(&["doctor"], &settings).expect_success();
    shell.run(&["models", "verify"], &settings).expect_success();
}

/// As the service starts itself at its first start.
#[test]
fn networks_are_measured_by_a_command_that_keeps_what_it_finds() {
    const TEST: &str = "networks_are_measured_by_a_command_that_keeps_what_it_finds";
    let (runtime, models) = match (test_data::find_runtime_library(), test_data::find_models_dir()) {
        (Ok(runtime), Ok(models)) => (runtime, models),
        (Err(why), _) | (_, Err(why)) => return skip_or_fail(TEST, &why),
    };
    let shell = Shell::new();
    let kept = shell.path().join("tuning.json");
    let (runtime, models) = (runtime.to_string_lossy(), models.to_string_lossy());
    let file = kept.to_string_lossy();
    let measure = |library: &str| shell.run(&["measure-networks", library, &models, &file], &[]);
    assert_eq!(measure("/nowhere/libonnxruntime.so").code, Some(1));
    assert!(!kept.exists());
    let circumstances = measure(&runtime).expect_success().to_owned();
    let text = std::fs::read_to_string(&kept).expect("measurements");
    let measured: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(measured["circumstances"], circumstances.trim_end());
    let networks = measured["networks"].as_array().expect("measurements");
    assert!(networks.iter().any(|network| network["backend"] == "openvino-f32"), "{text}");
}

#[test]
fn models_verify_finds_a_damaged_file() {
    const TEST: &str = "models_verify_finds_a_damaged_file";
    let models = match test_data::find_models_dir() {
        Ok(models) => models,
        Err(why) => return skip_or_fail(TEST, &why),
    };
    let shell = Shell::new();
    let damaged = shell.path().join("models");
    std::fs::create_dir(&damaged).expect("a folder");
    for entry in std::fs::read_dir(models).expect("a folder").flatten() {
        if entry.path().is_file() {
            let mut bytes = std::fs::read(entry.path()).expect("a file");
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(damaged.join(entry.file_name()), bytes).expect("a file");
        }
    }
    let place = damaged.to_string_lossy().into_owned();
    let output = shell.run(&["models", "verify"], &[("PHOTOFINISH_MODELS_DIR", &place)]);
    assert_eq!(output.code, Some(1), "{}", output.combined_output());
}

/// Panic messages and debug information name source files. Assembler files of libraries keep their whole paths: their
/// tools have no option for it.
#[test]
fn the_binary_names_no_rust_source_by_a_path_of_the_machine_that_built_it() {
    let binary = std::fs::read(binary_path()).expect("the binary can be read");
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in the workspace");
    let default_home = || std::env::home_dir().map(|home| home.join(".cargo"));
    let cargo_home = option_env!("CARGO_HOME").map(PathBuf::from).or_else(default_home);
    let registry = cargo_home.expect("cargo has a folder").join("registry/src");
    let is_printable = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    for text in binary.split(|byte| !is_printable(byte)).filter_map(|text| std::str::from_utf8(text).ok()) {
        for folder in [checkout.join("src"), registry.clone()] {
            let folder = folder.to_string_lossy();
            let source = text.split_once(&*folder).map(|(_, rest)| rest);
            assert!(!source.is_some_and(|rest| rest.contains(".rs")), "{text:.300} is in the binary");
        }
    }
}

#[test]
fn help_names_every_command() {
    let shell = Shell::new();
    let help = shell.run(&["--help"], &[]);
    for name in
        ["all", "serve", "work", "key", "start-list", "upload", "doctor", "config", "migrate", "models"]
    {
        assert!(
            help.expect_success().lines().any(|line| line.trim_start().starts_with(name)),
            "{name} is not in the help"
        );
    }
    let version = shell.run(&["--version"], &[]);
    assert!(version.expect_success().starts_with("photofinish "));
}
