//! The master secret of an installation: once something is sealed with it, no process of any role starts without it.

use std::path::Path;
use std::sync::Arc;

use photofinish_servers::Postgres;
use photofinish_tests::harness::{Service, ServiceOptions};
use serde_json::json;
use tempfile::TempDir;

use crate::erasures::erase;

const ROLES: [&str; 3] = ["all", "serve", "work"];
const SECRET_KEY: &str = "bWFzdGVyIHNlY3JldCBvZiB0aGlydHktdHdvIGJ5dGU=";

/// A folder for a service that has none of the secrets of another.
fn empty_folder() -> Arc<TempDir> {
    let folder = tempfile::tempdir().expect("a folder for the service");
    std::fs::create_dir(folder.path().join("data")).expect("an empty folder");
    Arc::new(folder)
}

/// Erases a bib of an album, whose digest is made with a secret that is sealed in the database.
fn seal_a_secret(service: &Service) {
    let partner = service.partner();
    let album = partner.create_album("Sealed");
    erase(&partner, "/people/erase", json!({ "albumId": album, "bib": "1204" }));
}

/// Checks that a process of this role ends at its start, and says why.
fn assert_refused(role: &'static str, options: &ServiceOptions, folder: &Arc<TempDir>, reason: &str) {
    let refused = Service::new_stopped(options.clone().with_role(role), Arc::clone(folder));
    assert!(!refused.try_restart(), "{role} started");
    assert!(refused.log().contains(reason), "{role}: {}", refused.log());
}

/// Checks that a process of this role starts.
fn assert_starts(role: &'static str, options: &ServiceOptions, folder: &Arc<TempDir>) {
    let started = Service::new_stopped(options.clone().with_role(role), Arc::clone(folder));
    assert!(started.try_restart(), "{role}: {}", started.log());
}

/// On a server no process makes the secret: the check finds that there is none (`SealedSecrets::NoMasterSecret`).
#[test]
fn no_role_starts_without_the_secret_key_once_a_server_has_sealed_secrets() {
    let Some(server) = Postgres::shared() else { return };
    let without =
        ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_DATABASE_URL", server.create_database());
    let with = without.clone().with_setting("PHOTOFINISH_SECRET_KEY", SECRET_KEY);
    let folder = empty_folder();
    assert_starts("work", &without, &folder);
    let service = Service::start(with.clone());
    seal_a_secret(&service);
    drop(service);
    for role in ROLES {
        assert_refused(role, &without, &folder, "PHOTOFINISH_SECRET_KEY is missing");
    }
    assert_starts("work", &with, &folder);
}

/// The database file and what belongs to it.
fn copy_database(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).expect("a data folder").flatten() {
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("photofinish.sqlite") {
            std::fs::copy(entry.path(), to.join(name)).expect("a copy");
        }
    }
}

/// With SQLite the secret is in the data folder: a copy of the database alone gets another one at its first start.
#[test]
fn no_role_starts_on_a_copied_database_without_the_key_of_its_data_folder() {
    let options = ServiceOptions::with_fake_models();
    let service = Service::start(options.clone());
    seal_a_secret(&service);
    service.kill();
    let folder = empty_folder();
    copy_database(&service.data_dir(), &folder.path().join("data"));
    let doctor = Service::new_stopped(options.clone(), Arc::clone(&folder)).run(&["doctor"]);
    assert_eq!(doctor.code, Some(1), "{}", doctor.combined_output());
    let said = "master.key: not there: PHOTOFINISH_SECRET_KEY is missing";
    assert!(doctor.stdout.contains(said), "{}", doctor.stdout);
    for role in ROLES {
        assert_refused(role, &options, &folder, "PHOTOFINISH_SECRET_KEY is another key");
    }
    let key = format!("file:{}", service.data_dir().join("secrets/master.key").display());
    let with_key = options.with_setting("PHOTOFINISH_SECRET_KEY", key);
    for role in ROLES {
        assert_starts(role, &with_key, &folder);
    }
}
