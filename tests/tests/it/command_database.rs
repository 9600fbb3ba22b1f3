//! Commands that only look: they create nothing and migrate nothing, whatever is missing. Commands that change what is there: they
//! create no database.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use photofinish_servers::{NatsServer, Postgres, S3Server, count_files_below};
use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{Service, ServiceOptions, isolated_command, wait_until};
use sqlx::{Connection, Executor, PgConnection, SqliteConnection};

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
fn doctor_says_that_secrets_are_not_checked_without_a_database() {
    let shell = Shell::new();
    let describe_secrets = || {
        let output = shell.run(&["doctor"], &[FAKES]);
        let line = output.stdout.lines().find(|line| line.contains(" secrets "));
        line.unwrap_or_else(|| panic!("nothing of secrets in {}", output.stdout)).to_owned()
    };
    let absent = describe_secrets();
    assert!(absent.ends_with("not checked: that needs a database that is up to date"), "{absent}");
    std::fs::write(shell.path().join("photofinish.sqlite"), "no database ".repeat(1000)).expect("a file");
    let unusable = describe_secrets();
    assert!(unusable.ends_with("not checked: the database could not be opened"), "{unusable}");
    std::fs::create_dir(shell.path().join("secrets")).expect("a folder");
    std::fs::write(shell.path().join("secrets/master.key"), [1; 7]).expect("a file");
    let damaged = describe_secrets();
    assert!(damaged.starts_with("FAIL") && damaged.ends_with("is not 32 bytes long"), "{damaged}");
}

#[test]
fn doctor_creates_no_stream_of_a_message_queue() {
    const ABSENT: &str = "the stream photofinish does not exist yet: the first start creates it";
    let Some(mut nats) = NatsServer::start() else { return };
    let options = ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_QUEUE_URL", nats.url());
    let folder = tempfile::tempdir().expect("a folder for the service");
    std::fs::create_dir(folder.path().join("data")).expect("an empty folder");
    let service = Service::new_stopped(options, Arc::new(folder));
    let doctor = || service.run(&["doctor"]);
    for command in [&["migrate"][..], &["sweep", "--dry-run"]] {
        // What one creates the next one finds.
        for _ in 0..2 {
            let output = doctor();
            assert!(output.expect_success().contains(ABSENT), "before {command:?}: {}", output.stdout);
        }
        service.run(command).expect_success();
    }
    let output = doctor();
    assert!(output.expect_success().contains(ABSENT), "{}", output.stdout);

    service.restart();
    wait_until("doctor finds the stream", || {
        doctor().stdout.contains("the stream photofinish; 0 photos wait")
    });
    service.terminate(Duration::from_secs(60));
    nats.kill();
    let output = doctor();
    assert_eq!(output.code, Some(1), "{}", output.combined_output());
    assert!(output.stdout.contains("connect to the queue"), "{}", output.stdout);
}

#[test]
fn doctor_writes_into_no_bucket_while_migrations_are_pending() {
    let Some(server) = S3Server::start() else { return };
    let variables = server.variables();
    let mut settings = vec![FAKES, ("PHOTOFINISH_STORAGE_URL", "s3://photos")];
    settings.extend(variables.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let describe_bucket = |shell: &Shell| {
        let output = shell.run(&["doctor"], &settings);
        let lines = output.expect_success().lines();
        let lines = lines.filter(|line| line.contains(" storage ") || line.contains(" bucket's "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let shell = Shell::new();
    shell.run(&["migrate"], &settings).expect_success();
    execute(&shell.path().join("photofinish.sqlite"), WITHOUT_THE_LAST);
    let pending = describe_bucket(&shell);
    assert_eq!(pending.len(), 1, "{pending:?}");
    assert!(pending[0].ends_with("not checked: that needs a database that is up to date"), "{pending:?}");
    assert_eq!(count_files_below(&server.bucket()), 0);

    // Before the first start it is tried whether objects can be written there.
    let first = describe_bucket(&Shell::new());
    for (line, part) in first.iter().zip(["s3://photos", "versions", "CORS"]) {
        assert!(line.contains(part), "{part} is not in {line}");
    }
    assert_eq!(first.len(), 3, "{first:?}");
    assert!(count_files_below(&server.bucket()) > 0);
}

#[test]
fn a_dry_run_of_sweep_creates_nothing() {
    let shell = Shell::new();
    shell.run(&["migrate"], &[]).expect_success();
    let names = list_names(shell.path());
    let output = shell.run(&["sweep", "--dry-run"], &[]);
    assert!(output.expect_success().starts_with("0 objects"), "{}", output.stdout);
    assert_eq!(list_names(shell.path()), names);
}

#[test]
fn who_only_looks_creates_no_folder_in_place_of_the_one_with_the_photos() {
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
    let output = service.run(&["sweep", "--dry-run"]);
    assert_eq!(output.code, Some(1), "{}", output.combined_output());
    assert!(output.stderr.contains("does not contain the photos in the database"), "{}", output.stderr);
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

#[test]
fn commands_that_change_what_is_there_create_no_database() {
    let shell = Shell::new();
    let email = ["--email", "anna@race.example"];
    let account = |command| [&["account", command][..], &email].concat();
    let commands = [
        vec!["key", "revoke", "01890000-0000-7000-8000-000000000000"],
        vec!["credits", "grant", "--organization", "Harbour Run", "--amount", "1"],
        account("link"),
        account("disable"),
        account("enable"),
        account("reset"),
        vec!["organization", "erase", "Harbour Run"],
        vec!["secret", "reseal"],
        vec!["sweep"],
    ];
    let wrong = shell.path().join("wrong");
    let data_dir = [("PHOTOFINISH_DATA_DIR", wrong.to_str().expect("a readable path"))];
    for command in &commands {
        let output = shell.run(command, &data_dir);
        assert_eq!(output.code, Some(1), "{command:?}: {}", output.combined_output());
        for part in ["is not created yet", "PHOTOFINISH_DATA_DIR is wrong"] {
            assert!(output.stderr.contains(part), "{command:?}: {part} is not in {}", output.stderr);
        }
        assert!(!wrong.exists(), "{command:?} created {}", wrong.display());
    }
    // A first step.
    let invite = ["account", "invite", "--organization", "Harbour Run", "--role", "owner"];
    shell.run(&[&invite[..], &email].concat(), &data_dir).expect_success();
    shell.run(&account("link"), &data_dir).expect_success();
}

/// What it does is in the log, and the Job of the chart has no other.
#[test]
fn a_migration_logs_that_it_waits_for_another() {
    let Some(server) = Postgres::shared() else { return };
    let url = server.create_database();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let take_turn = async {
        let mut connection = PgConnection::connect(&url).await?;
        connection.execute("select pg_advisory_lock(x'70686f746f66696e'::bigint)").await?;
        Ok::<_, sqlx::Error>(connection)
    };
    let other = runtime.block_on(take_turn).expect("the turn of a migration");
    let shell = Shell::new();
    let log = shell.path().join("log.txt");
    let mut command = isolated_command(shell.path(), &["migrate"]);
    command.env("PHOTOFINISH_DATABASE_URL", &url).stdout(Stdio::piped());
    command.stderr(File::create(&log).expect("a log"));
    let migration = command.spawn().expect("a process");
    let waits = "another process migrates the database, waiting for it";
    wait_until("the migration waits", || std::fs::read_to_string(&log).expect("a log").contains(waits));
    runtime.block_on(other.close()).expect("the turn ends");
    let output = migration.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", std::fs::read_to_string(&log).expect("a log"));
    assert_eq!(output.stdout, b"the database is up to date\n");
}
