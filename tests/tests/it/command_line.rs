//! The command line, as an operator and a partner type it.

use std::path::{Path, PathBuf};

use photofinish_tests::harness::pictures::Picture;
use photofinish_tests::harness::{Options, Service, command, run, shared, skip_or_fail};

/// An empty data folder with a binary that knows nothing of this shell.
struct Shell(tempfile::TempDir);

impl Shell {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn run(&self, arguments: &[&str], settings: &[(&str, &str)]) -> photofinish_tests::harness::Output {
        run(command(self.path())
            .args(arguments)
            .envs(settings.iter().copied()))
    }
}

#[test]
fn a_key_is_printed_alone_and_listed_without_its_secret() {
    let shell = Shell::new();
    let arguments = [
        "key",
        "create",
        "--organization",
        "Harbour Run",
        "--mode",
        "live",
        "--label",
        "timing van",
    ];
    let created = shell.run(
        &[
            &arguments[..],
            &["--scope", "search:read", "--scope", "photo:upload"],
        ]
        .concat(),
        &[],
    );
    let key = created.success();
    assert!(
        key.starts_with("svc_live_") && !key.contains(char::is_whitespace),
        "{key}"
    );
    // 9 characters of prefix, 32 bytes in base62, 6 characters of checksum.
    assert!(
        (9 + 42 + 6..=9 + 44 + 6).contains(&key.len()),
        "{} characters",
        key.len()
    );
    let listed = shell.run(&["key", "list"], &[]);
    let listing = listed.success();
    assert_eq!(listing.lines().count(), 1, "{listing}");
    for part in [
        "Harbour Run",
        "timing van",
        "search:read",
        "photo:upload",
        "active",
    ] {
        assert!(listing.contains(part), "{part} is not in {listing}");
    }
    assert!(
        !listing.contains("album:manage") && !listing.contains(&key[20..]),
        "{listing}"
    );
    let id = listing.split_whitespace().next().expect("an id");
    shell.run(&["key", "revoke", id], &[]).success();
    shell.run(&["key", "revoke", id], &[]).success();
    assert!(shell.run(&["key", "list"], &[]).success().contains("revoked"));
}

#[test]
fn a_key_command_that_cannot_be_carried_out_says_why() {
    let shell = Shell::new();
    let nowhere = "01890000-0000-7000-8000-000000000000";
    let cases: [(&[&str], &str); 5] = [
        (
            &[
                "key",
                "create",
                "--organization",
                "X",
                "--mode",
                "live",
                "--scope",
                "everything",
            ],
            "search:read",
        ),
        (
            &[
                "key",
                "create",
                "--organization",
                "X",
                "--mode",
                "tset",
                "--scope",
                "search:read",
            ],
            "test",
        ),
        (
            &[
                "key",
                "create",
                "--organization",
                " ",
                "--mode",
                "test",
                "--scope",
                "search:read",
            ],
            "organization",
        ),
        (
            &["key", "create", "--organization", "X", "--mode", "test"],
            "--scope",
        ),
        (&["key", "revoke", nowhere], nowhere),
    ];
    for (arguments, word) in cases {
        let output = shell.run(arguments, &[]);
        assert!(
            output.code.is_some_and(|code| code != 0),
            "{arguments:?} succeeded"
        );
        assert!(
            output.stderr.contains(word),
            "{arguments:?} does not speak of {word}: {}",
            output.stderr
        );
        assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
    }
}

#[test]
fn an_upload_sends_what_is_missing_and_reconciles() {
    let service = Service::start(Options::fakes());
    let partner = service.partner();
    let album = partner.album("Folder");
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, bytes).expect("a file");
    };
    for number in 0..20 {
        let bib = format!("{}", 300 + number);
        write(
            &format!("day 1/IMG_{number}.JPG"),
            &Picture::new(600, 400).bib(&bib, 150, 150).jpeg(),
        );
    }
    write("start.png", &Picture::new(600, 400).bib("901", 150, 150).png());
    write("notes.txt", b"not a photo");
    write("broken.jpg", b"not a photo either");
    let upload = || {
        service.run(&[
            "upload",
            "--url",
            &service.origin(),
            "--key",
            partner.key(),
            "--album",
            &album,
            &folder.path().to_string_lossy(),
        ])
    };
    let first = upload();
    let summary = first.success();
    assert!(summary.contains("22 photos in the folder"), "{summary}");
    assert!(summary.contains("22 sent and confirmed"), "{summary}");
    assert!(summary.contains("1 other files were left out"), "{summary}");
    let progress = partner.wait_idle(&album);
    assert_eq!(
        (&progress["ready"], &progress["failed"]),
        (&21.into(), &1.into()),
        "{progress}"
    );
    assert_eq!(partner.find_text_exactly(&album, "317").len(), 1);
    assert_eq!(partner.find_text_exactly(&album, "901").len(), 1);

    write("late.jpg", &Picture::new(600, 400).bib("902", 150, 150).jpeg());
    let stale = partner.signed(&album, "half.jpg", "image/jpeg");
    write("half.jpg", &Picture::new(600, 400).bib("903", 150, 150).jpeg());
    let second = upload();
    let summary = second.success();
    assert!(summary.contains("22 were in the album already"), "{summary}");
    assert!(summary.contains("2 sent and confirmed"), "{summary}");
    let progress = partner.wait_idle(&album);
    assert_eq!(
        (&progress["ready"], &progress["awaitingUpload"]),
        (&23.into(), &0.into()),
        "{progress}"
    );
    assert_eq!(partner.find_text_exactly(&album, "903").len(), 1);
    assert!(
        partner
            .photos(&album)
            .iter()
            .all(|photo| photo["id"] != *stale.id)
    );
    assert!(upload().success().contains("0 sent and confirmed"));
}

#[test]
fn an_upload_that_is_refused_says_so() {
    let service = Service::start(Options::fakes());
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("a.jpg"), Picture::new(64, 64).jpeg()).expect("a file");
    let album = service.partner().album("Refused");
    let reader = service.key(&["search:read"], "test");
    let place = folder.path().to_string_lossy().into_owned();
    let cases = [
        (
            service.origin(),
            "svc_test_nonsense".to_owned(),
            album.clone(),
            place.clone(),
            "401",
        ),
        (service.origin(), reader, album.clone(), place.clone(), "403"),
        (
            service.origin(),
            service.partner().key().to_owned(),
            "01890000-0000-7000-8000-000000000000".into(),
            place.clone(),
            "404",
        ),
        (
            service.origin(),
            service.partner().key().to_owned(),
            album,
            "/no/such/folder".into(),
            "/no/such/folder",
        ),
    ];
    for (url, key, album, place, word) in cases {
        let output = service.run(&["upload", "--url", &url, "--key", &key, "--album", &album, &place]);
        assert_eq!(output.code, Some(1), "{}", output.everything());
        assert!(
            output.stderr.contains(word),
            "does not speak of {word}: {}",
            output.stderr
        );
        assert!(
            !output.everything().contains(&key[12..]) && !output.stderr.contains("panicked"),
            "{}",
            output.stderr
        );
    }
}

#[test]
fn an_upload_goes_on_after_the_service_was_cut_off() {
    let service = Service::start(Options::fakes());
    let partner = service.partner();
    let album = partner.album("Cut off");
    let folder = tempfile::tempdir().expect("a folder");
    for number in 0..64 {
        let picture = Picture::new(1200, 900).bib(&format!("{}", 5000 + number * 11), 300, 300);
        std::fs::write(folder.path().join(format!("{number:02}.jpg")), picture.jpeg()).expect("a file");
    }
    let place = folder.path().to_string_lossy().into_owned();
    let arguments = [
        "upload",
        "--url",
        &service.origin(),
        "--key",
        partner.key(),
        "--album",
        &album,
        "--parallel",
        "2",
        &place,
    ];
    std::thread::scope(|scope| {
        let upload = scope.spawn(|| service.run(&arguments));
        while partner.progress(&album)["total"].as_u64().unwrap_or(0) < 16 {
            assert!(
                !upload.is_finished(),
                "the upload ended before anything was confirmed"
            );
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        service.kill9();
        service.restart();
        upload.join().expect("the upload ends");
    });
    service.run(&arguments).success();
    let progress = partner.wait_idle(&album);
    assert_eq!(
        (&progress["ready"], &progress["total"]),
        (&64.into(), &64.into()),
        "each photo once: {progress}"
    );
}

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
        assert_eq!(output.code, Some(1), "{role:?}: {}", output.everything());
        for (name, _) in settings {
            assert!(
                output.stderr.contains(name),
                "{role:?} does not name {name}: {}",
                output.stderr
            );
        }
        assert!(
            !output.everything().contains("hidden-word"),
            "a password is shown: {}",
            output.stderr
        );
        assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
    }
}

#[test]
fn config_prints_what_is_in_force_with_secrets_masked() {
    let shell = Shell::new();
    let settings = [
        ("PHOTOFINISH_ENVIRONMENT", "sandbox"),
        ("PHOTOFINISH_MAX_PHOTO_MB", "12"),
    ];
    let output = shell.run(&["config", "--listen", "127.0.0.1:9999"], &settings);
    let lines: Vec<&str> = output.success().lines().collect();
    for line in [
        "PHOTOFINISH_LISTEN=127.0.0.1:9999",
        "PHOTOFINISH_ENVIRONMENT=sandbox",
        "PHOTOFINISH_MAX_PHOTO_MB=12",
    ] {
        assert!(lines.contains(&line), "{line} is not in {lines:?}");
    }
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("PHOTOFINISH_PUBLIC_URL=http://127.0.0.1:9999")),
        "{lines:?}"
    );
    let names: Vec<&str> = lines.iter().filter_map(|line| line.split('=').next()).collect();
    for name in [
        "DATA_DIR",
        "DATABASE_URL",
        "STORAGE_URL",
        "QUEUE_URL",
        "MODELS_DIR",
        "DEVICE",
    ] {
        assert!(
            names.contains(&format!("PHOTOFINISH_{name}").as_str()),
            "{name} is not in {names:?}"
        );
    }
}

#[test]
fn migrate_makes_a_database_and_can_be_repeated() {
    let shell = Shell::new();
    shell.run(&["migrate"], &[]).success();
    assert!(shell.path().join("photofinish.sqlite").is_file());
    shell.run(&["migrate"], &[]).success();
}

#[test]
fn secrets_are_readable_by_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let shell = Shell::new();
    shell.run(&["migrate"], &[]).success();
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
fn doctor_and_start_name_what_is_missing_without_a_panic() {
    let shell = Shell::new();
    let nothing = shell.path().join("nothing").to_string_lossy().into_owned();
    let runtime = shared::runtime_library().map(|path| path.to_string_lossy().into_owned());
    let mut cases = vec![(
        [
            ("PHOTOFINISH_ONNXRUNTIME", nothing.clone()),
            ("PHOTOFINISH_MODELS_DIR", nothing.clone()),
        ],
        "ONNX Runtime",
    )];
    let fake_library = shell.path().join("libonnxruntime.so");
    std::fs::write(&fake_library, b"no library").expect("a file");
    let fake_library = fake_library.to_string_lossy().into_owned();
    cases.push((
        [
            ("PHOTOFINISH_ONNXRUNTIME", fake_library),
            ("PHOTOFINISH_MODELS_DIR", nothing.clone()),
        ],
        "libonnxruntime.so",
    ));
    if let Ok(runtime) = runtime {
        cases.push((
            [
                ("PHOTOFINISH_ONNXRUNTIME", runtime),
                ("PHOTOFINISH_MODELS_DIR", nothing),
            ],
            "model",
        ));
    }
    for (settings, word) in cases {
        let settings: Vec<(&str, &str)> = settings
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        for arguments in [&["doctor"][..], &["all", "--listen", "127.0.0.1:0"]] {
            let output = shell.run(arguments, &settings);
            assert_eq!(output.code, Some(1), "{arguments:?}: {}", output.everything());
            assert!(
                output.everything().contains(word),
                "{arguments:?} does not speak of {word}: {}",
                output.everything()
            );
            assert!(
                !output.everything().contains("panicked"),
                "{}",
                output.everything()
            );
        }
    }
}

#[test]
fn doctor_says_that_all_is_well_with_the_fakes() {
    let shell = Shell::new();
    let output = shell.run(&["doctor"], &[("PHOTOFINISH_MODELS", "fake")]);
    output.success();
    for part in ["database", "storage"] {
        assert!(output.stdout.contains(part), "{part} is not in {}", output.stdout);
    }
}

#[test]
fn doctor_and_models_verify_say_that_all_is_well_when_it_is() {
    const TEST: &str = "doctor_and_models_verify_say_that_all_is_well_when_it_is";
    let (runtime, models) = match (shared::runtime_library(), shared::models_dir()) {
        (Ok(runtime), Ok(models)) => (runtime, models),
        (Err(why), _) | (_, Err(why)) => return skip_or_fail(TEST, &why),
    };
    let shell = Shell::new();
    let (runtime, models) = (
        runtime.to_string_lossy().into_owned(),
        models.to_string_lossy().into_owned(),
    );
    let settings = [
        ("PHOTOFINISH_ONNXRUNTIME", runtime.as_str()),
        ("PHOTOFINISH_MODELS_DIR", models.as_str()),
    ];
    shell.run(&["doctor"], &settings).success();
    shell.run(&["models", "verify"], &settings).success();
}

#[test]
fn models_verify_finds_a_damaged_file() {
    const TEST: &str = "models_verify_finds_a_damaged_file";
    let models = match shared::models_dir() {
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
    assert_eq!(output.code, Some(1), "{}", output.everything());
}

#[test]
fn help_names_every_command() {
    let shell = Shell::new();
    let help = shell.run(&["--help"], &[]);
    for name in [
        "all", "serve", "work", "key", "upload", "doctor", "config", "migrate", "models",
    ] {
        assert!(
            help.success()
                .lines()
                .any(|line| line.trim_start().starts_with(name)),
            "{name} is not in the help"
        );
    }
    let version = shell.run(&["--version"], &[]);
    assert!(version.success().starts_with("photofinish "));
}
