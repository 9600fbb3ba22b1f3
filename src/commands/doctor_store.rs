//! What `photofinish doctor` says of database, secrets, storage and queue. In the place of what is missing, or would be migrated, the
//! store is opened with something that is deleted again. A message queue is only asked whether it has the stream.

use std::path::Path;

use photofinish_store::model::photo::CountMismatch;
use photofinish_store::{QueueSettings, SchemaState, Store, StreamState, check_schema, check_stream};

use super::doctor::Finding;
use super::doctor_cors;
use crate::config::Config;
use crate::config::redact::redact_url;
use crate::secrets::{self, FoundSecrets};
use crate::store::ExistingStore;
use crate::{schema, store};

/// Why something is not checked without a database.
const NEEDS_DATABASE: &str = "that needs a database that is up to date";
/// Why something is not checked with a database that is out of order.
const NO_DATABASE: &str = "the database could not be opened";
/// Why something is not checked with a database that is up to date, where it or the storage cannot be used.
const NO_STORE: &str = "database and storage could not be opened together";

/// Checks the database, and what is behind the store.
pub(super) async fn check(config: &Config) -> Vec<Finding> {
    match check_schema(&config.database_url).await {
        Ok(schema) => match schema::describe_unready(config, &schema) {
            Some(database) => {
                let mut findings = vec![Finding { component: "database", state: database }];
                findings.extend(check_without_database(config, &schema).await);
                findings
            }
            None => check_with_database(config, &schema).await,
        },
        Err(error) => {
            let database = Finding { component: "database", state: Err(error.to_string_with_causes()) };
            vec![database, check_secret_files(secrets::find(config), NO_DATABASE)]
        }
    }
}

fn not_checked(component: &'static str, reason: &str) -> Finding {
    Finding { component, state: Ok(format!("not checked: {reason}")) }
}

/// Fails where a start could not use the files of the secrets. Whether they open what is sealed in the database is not checked, for
/// this reason.
fn check_secret_files(found: anyhow::Result<FoundSecrets>, reason: &str) -> Finding {
    match found {
        Ok(_) => not_checked("secrets", reason),
        Err(error) => Finding { component: "secrets", state: Err(format!("{error:#}")) },
    }
}

/// Checks bucket and queue without the database: before the first start above all, wrong addresses and credentials are to be
/// found.
async fn check_without_database(config: &Config, schema: &SchemaState) -> Vec<Finding> {
    let mut findings = if config.storage_url.starts_with("file:") {
        vec![not_checked("storage", "a start opens the folder, and creates it where there is none")]
    } else if matches!(schema, SchemaState::Present { .. }) {
        // The check would leave an object there, by which a start takes a wrong bucket for the one with the photos.
        vec![not_checked("storage", NEEDS_DATABASE)]
    } else {
        check_bucket_without_database(config).await
    };
    findings.push(match &config.queue {
        Some(queue) => Finding { component: "queue", state: describe_stream(queue).await },
        None => not_checked("queue", "it is in the database"),
    });
    findings.push(not_checked("photo counts", NEEDS_DATABASE));
    findings.push(check_secret_files(secrets::find(config), NEEDS_DATABASE));
    findings
}

/// Checks a bucket with an empty database that is deleted again.
async fn check_bucket_without_database(config: &Config) -> Vec<Finding> {
    let failed = |error: String| vec![Finding { component: "storage", state: Err(error) }];
    let folder = match tempfile::tempdir() {
        Ok(folder) => folder,
        Err(error) => return failed(error.to_string()),
    };
    let mut beside = config.clone();
    beside.database_url = format!("sqlite:{}", folder.path().join("photofinish.sqlite").display());
    match store::open_existing(&beside, None).await {
        Ok(opened) => {
            let findings = check_storage(config, &opened).await;
            opened.store.close().await;
            findings
        }
        Err(error) => failed(format!("{error:#}")),
    }
}

/// Checks a database that is up to date, and all that a start would find beside it.
async fn check_with_database(config: &Config, schema: &SchemaState) -> Vec<Finding> {
    let secrets = secrets::find(config);
    let master_secret = secrets.as_ref().ok().and_then(|found| found.master.clone());
    let opened = match store::open_existing(config, master_secret).await {
        Ok(opened) => opened,
        Err(error) => {
            let store = Finding { component: "database and storage", state: Err(format!("{error:#}")) };
            return vec![store, check_secret_files(secrets, NO_STORE)];
        }
    };
    let store = &opened.store;
    let database = store.check_database().await.map(|()| describe_database(config, schema));
    let database = database.map_err(|error| error.to_string());
    let mut findings = vec![Finding { component: "database", state: database }];
    findings.extend(check_storage(config, &opened).await);
    findings.push(Finding { component: "queue", state: check_queue(config, store).await });
    findings.push(Finding { component: "photo counts", state: check_counts(store).await });
    let secrets = check_secrets(secrets, store).await;
    findings.push(Finding { component: "secrets", state: secrets.map_err(|error| format!("{error:#}")) });
    // SQLite removes the files beside the database then.
    store.close().await;
    findings
}

/// Says what a start would do with a storage's folder that was never prepared, or why it would refuse it.
async fn describe_new_folder(folder: &Path, opened: &ExistingStore) -> Result<String, String> {
    opened.check_new_folder().await.map_err(|error| format!("{error:#}"))?;
    let shown = folder.display();
    // A file without a name: nothing is left of it, whatever happens.
    match tempfile::tempfile_in(folder) {
        Ok(_) => Ok(format!("{shown} has no objects yet: the next start prepares it")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Ok(format!("{shown} is not created yet: the next start does that"))
        }
        Err(error) => Err(format!("{shown}: {error}")),
    }
}

/// Says which secrets a start would create. Fails where it could not use those that there are, or open with them what is sealed
/// in the database.
async fn check_secrets(found: anyhow::Result<FoundSecrets>, store: &Store) -> anyhow::Result<String> {
    let missing: Vec<String> = found?.missing.iter().map(|file| file.display().to_string()).collect();
    let missing = missing.join(", ");
    match store::check_sealed_secrets(store).await {
        Ok(()) if missing.is_empty() => Ok("all that a start needs is there".to_owned()),
        Ok(()) => Ok(format!("{missing}: not created yet, the next start does that")),
        Err(error) if missing.is_empty() => Err(error),
        Err(error) => Err(error.context(format!("{missing}: not there"))),
    }
}

/// Checks the storage, and what only its cloud knows of a bucket.
async fn check_storage(config: &Config, opened: &ExistingStore) -> Vec<Finding> {
    let store = &opened.store;
    let state = match &opened.new_folder {
        Some(folder) => describe_new_folder(folder, opened).await,
        None => {
            let checked = store.check_storage().await.map(|()| redact_url(&config.storage_url));
            checked.map_err(|error| error.to_string())
        }
    };
    let mut findings = vec![Finding { component: "storage", state }];
    if store.local.is_some() {
        return findings;
    }
    let versions = Ok(describe_versions(store).to_owned());
    findings.push(Finding { component: "bucket's versions", state: versions });
    if config.settings.console.is_enabled() {
        // Without it partners are served all the same, so this never fails.
        let gallery_url = config.settings.console.gallery_url.as_ref().unwrap_or(&config.public_url);
        let state = Ok(doctor_cors::describe(store, &[config.console_url(), gallery_url]).await);
        findings.push(Finding { component: "bucket's CORS", state });
    }
    findings
}

/// The URL, and what a newer version has made of a server, which replicas of two versions share during a rolling update.
fn describe_database(config: &Config, schema: &SchemaState) -> String {
    let url = redact_url(&config.database_url);
    match schema {
        SchemaState::Present { unknown, .. } if !unknown.is_empty() => {
            format!("{url}; {}", schema::describe_newer(unknown))
        }
        _ => url,
    }
}

/// Says whether what is deleted from the bucket is gone. The service works either way, so this never fails.
fn describe_versions(store: &Store) -> &'static str {
    match store.storage_keeps_versions() {
        Some(false) => "the bucket keeps no older versions of objects",
        Some(true) => {
            "WARNING: the bucket keeps older versions of objects, so what is erased stays in them until a rule of the bucket \
             removes them, and receipts say so. Give it a lifecycle rule that expires noncurrent versions"
        }
        None => {
            "not known: look whether the bucket keeps older versions of objects, in which what is erased would stay"
        }
    }
}

/// Compares the kept counts of photos with their rows.
async fn check_counts(store: &Store) -> Result<String, String> {
    let mismatches = store.find_count_mismatches().await.map_err(|error| error.to_string())?;
    let Some(CountMismatch { album, state, kept, counted }) = mismatches.first() else {
        return Ok("are those of the rows".to_owned());
    };
    let others = mismatches.len() - 1;
    Err(format!(
        "album {album} has {counted} photos that are {state}, not {kept}; {others} other counts are wrong"
    ))
}

/// Says how many photos wait, and whether a message queue has the stream.
async fn check_queue(config: &Config, store: &Store) -> Result<String, String> {
    let depth = store.queue.depth().await.map_err(|error| error.to_string())?;
    let place = match &config.queue {
        Some(queue) => describe_stream(queue).await?,
        None => "in the database".to_owned(),
    };
    Ok(format!("{place}; {depth} photos wait"))
}

async fn describe_stream(queue: &QueueSettings) -> Result<String, String> {
    let stream = &queue.stream;
    match check_stream(queue).await {
        Ok(StreamState::Present) => Ok(format!("the stream {stream}")),
        Ok(StreamState::Absent) => {
            Ok(format!("the stream {stream} does not exist yet: the first start creates it"))
        }
        // The first cause is enough: it repeats its own.
        Err(error) => Err(match &error.source {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        }),
    }
}
