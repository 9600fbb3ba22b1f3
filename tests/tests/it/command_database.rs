//! Commands that only look: they create nothing and migrate nothing, whatever is missing.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{Service, ServiceOptions};
use sqlx::{Connection, Executor, SqliteConnection};

use crate::shell::Shell;

const FAKES: (&str, &str) = ("PHOTOFINISH_MODELS", "fake");

/// Makes the database one of an earlier version.
const WITHOUT_THE_LAST: &str = "delete from _sqlx_migrations where version = 29";

/// Changes a database that no process uses.
fn execute(database: &Path, statement: &'static str) {
    let url = format!("sqlite:{}", database.display());
    let change = async {
        let mut connection = SqliteConnection::connect(&url).await?;
        connection.execute(statement).await?;
        connection.close().await
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(change).expect("a statement");
}

/// What is in a folder.
fn list_names(folder: &Path) -> BTreeSet<OsString> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    entries.map(|entry| entry.expect("an entry").file_name()).collect()
}

#[test]
fn doctor_neither_creates_nor_migrates_a_database() {
    let shell = Shell::new();
    let wrong = shell.path().join("wrong");
    let output =
        shell.run(&["doctor"], &[FAKES, ("PHOTOFINISH_DATA_DIR", wrong.to_str().expect("a readable path"))]);
    for part in ["is not created yet", "not checked: that needs a database that is up to date"] {
        assert!(output.expect_success().contains(part), "{part} is not in {}", output.stdout);
    }
    assert!(!wrong.exists(), "{} was created", wrong.display());

    shell.run(&["migrate"], &[]).expect_success();
    let output = shell.run(&["doctor"], &[FAKES]);
    assert!(output.expect_success().contains("are those of the rows"), "{}", output.stdout);

    let database = shell.path().join("photofinish.sqlite");
    execute(&database, WITHOUT_THE_LAST);
    let before = std::fs::read(&database).expect("a database");
    let output = shell.run(&["doctor"], &[FAKES]);
    for part in ["0029 waiting with pictures", "not checked: that needs a database that is up to date"] {
        assert!(output.expect_success().contains(part), "{part} is not in {}", output.stdout);
    }
    assert!(std::fs::read(&database).expect("a database") == before, "the database was changed");

    let newer = "insert into _sqlx_migrations (version, description, success, checksum, execution_time) \
                 values (9999, 'later', true, x'00', 0)";
    execute(&database, newer);
    let output = shell.run(&["doctor"], &[FAKES]);
    assert_eq!(output.code, Some(1), "{}", output.combined_output());
    assert!(output.stdout.contains("a newer version of photofinish has migrated it"), "{}", output.stdout);
}

#[test]
fn doctor_creates_neither_secrets_nor_the_folder_of_the_storage() {
    let shell = Shell::new();
    shell.run(&["migrate"], &[]).expect_success();
    let names = list_names(shell.path());
    let output = shell.run(&["doctor"], &[FAKES]);
    let parts = ["url-signing.key", "master.key", "objects is not created yet", "are those of the rows"];
    for part in parts {
        assert!(output.expect_success().contains(part), "{part} is not in {}", output.stdout);
    }
    assert_eq!(list_names(shell.path()), names);

    // As a disk that was mounted for the first start.
    let objects = shell.path().join("objects");
    std::fs::create_dir(&objects).expect("a folder");
    let output = shell.run(&["doctor"], &[FAKES]);
    assert!(output.expect_success().contains("objects has no objects yet"), "{}", output.stdout);
    assert_eq!(list_names(&objects), BTreeSet::new());

    shell.run(&["sweep"], &[]).expect_success();
    let names = list_names(shell.path());
    let output = shell.run(&["doctor"], &[FAKES]);
    assert!(output.expect_success().contains("all that a start needs is there"), "{}", output.stdout);
    assert!(!output.stdout.contains(" yet"), "{}", output.stdout);
    assert_eq!(list_names(shell.path()), names);
}

#[test]
fn doctor_creates_no_folder_in_place_of_the_one_with_the_photos() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let album = service.partner().create_album("Not mounted");
    service.partner().upload_photo(&album, "a.jpg", &TestPhoto::new(640, 480).to_jpeg());
    service.terminate(Duration::from_secs(60));
    let objects = service.data_dir().join("objects");
    std::fs::remove_dir_all(&objects).expect("a folder");
    let output = service.run(&["doctor"]);
    assert_eq!(output.code, Some(1), "{}", output.combined_output());
    for part in ["does not contain the photos in the database", "are those of the rows"] {
        assert!(output.stdout.contains(part), "{part} is not in {}", output.stdout);
    }
    assert!(!objects.exists(), "{} was created", objects.display());
}

#[test]
fn commands_that_only_read_neither_create_nor_migrate_a_database() {
    let shell = Shell::new();
    let days = ["--from", "2026-01-01", "--to", "2026-01-31"];
    let commands = [
        vec!["key", "list"],
        vec!["account", "list"],
        vec!["credits", "show", "--organization", "Harbour Run"],
        [&["usage", "--organization", "Harbour Run"][..], &days].concat(),
        vec!["costs", "--organization", "Harbour Run"],
        vec!["sweep", "--dry-run"],
    ];
    let refuses = |command: &[&str], settings: &[(&str, &str)], reason: &str| {
        let output = shell.run(command, settings);
        assert_eq!(output.code, Some(1), "{command:?}: {}", output.combined_output());
        for part in [reason, "photofinish migrate"] {
            assert!(output.stderr.contains(part), "{command:?}: {part} is not in {}", output.stderr);
        }
    };
    let wrong = shell.path().join("wrong");
    let data_dir = [("PHOTOFINISH_DATA_DIR", wrong.to_str().expect("a readable path"))];
    for command in &commands {
        refuses(command, &data_dir, "is not created yet");
        assert!(!wrong.exists(), "{command:?} created {}", wrong.display());
    }

    let create = ["key", "create", "--organization", "Harbour Run", "--mode", "test"];
    shell.run(&[&create[..], &["--scope", "search:read"]].concat(), &[]).expect_success();
    for command in &commands {
        shell.run(command, &[]).expect_success();
    }

    let database = shell.path().join("photofinish.sqlite");
    execute(&database, WITHOUT_THE_LAST);
    let before = std::fs::read(&database).expect("a database");
    for command in &commands {
        refuses(command, &[], "0029 waiting with pictures");
        let after = std::fs::read(&database).expect("a database");
        assert!(after == before, "{command:?} changed the database");
    }
}
