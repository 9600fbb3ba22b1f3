//! What `photofinish doctor` says of database, secrets, storage and queue. In the place of what is missing, or would be migrated, the
//! store is opened with something that is deleted again. The stream of a message queue is created, as a start does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use photofinish_store::blobs::local;
use photofinish_store::model::photo::CountMismatch;
use photofinish_store::{SchemaState, Store, StoreError, check_schema};
use tempfile::TempDir;

use super::doctor::Finding;
use super::doctor_cors;
use crate::config::Config;
use crate::config::redact::redact_url;
use crate::secrets::{self, FoundSecrets};
use crate::{schema, store};

/// The connection to the queue is made in the background: how often it is checked, and the pause between two checks.
const CONNECT_ATTEMPTS: usize = 30;
const CONNECT_PAUSE: Duration = Duration::from_millis(100);

/// Checks the database, and what is behind the store.
pub(super) async fn check(config: &Config) -> Vec<Finding> {
    match check_schema(&config.database_url).await {
        Ok(schema) => match schema::describe_unready(config, &schema) {
            Some(database) => {
                let mut findings = vec![Finding { component: "database", state: database }];
                findings.extend(check_without_database(config).await);
                findings
            }
            None => check_with_database(config, &schema).await,
        },
        Err(error) => vec![Finding { component: "database", state: Err(error.to_string_with_causes()) }],
    }
}

/// Checks bucket and queue without the database, with an empty one that is deleted again: before the first start above all,
/// wrong addresses and credentials are to be found.
async fn check_without_database(config: &Config) -> Vec<Finding> {
    let unchecked =
        |component, reason: &str| Finding { component, state: Ok(format!("not checked: {reason}")) };
    let counts = unchecked("photo counts", "that needs a database that is up to date");
    let is_folder = config.storage_url.starts_with("file:");
    let unopened = unchecked("storage", "a start opens the folder, and creates it where there is none");
    if is_folder && config.queue.is_none() {
        return vec![unopened, unchecked("queue", "it is in the database"), counts];
    }
    let folder = match tempfile::tempdir() {
        Ok(folder) => folder,
        Err(error) => return vec![Finding { component: "storage", state: Err(error.to_string()) }],
    };
    let mut beside = config.clone();
    beside.database_url = format!("sqlite:{}", folder.path().join("photofinish.sqlite").display());
    beside.settings.service.data_dir = folder.path().to_owned();
    if is_folder {
        beside.storage_url = format!("file:{}", folder.path().join("objects").display());
    }
    let found = match store::open_store(&beside).await {
        Ok(store) => check_opened_store(&beside, &store, &UP_TO_DATE, None).await,
        Err(error) => vec![Finding { component: "database", state: Err(format!("{error:#}")) }],
    };
    let of_others = found.into_iter().filter_map(move |finding| match (finding.component, &finding.state) {
        ("database", Ok(_)) | ("photo counts", _) => None,
        // The database is not at fault.
        ("database", Err(_)) => Some(Finding { component: "storage and queue", ..finding }),
        ("storage", _) if is_folder => Some(unopened.clone()),
        _ => Some(finding),
    });
    of_others.chain([counts]).collect()
}

const UP_TO_DATE: SchemaState = SchemaState::Present { pending: Vec::new(), unknown: Vec::new() };

/// Checks a database that is up to date, and all that a start would find beside it.
async fn check_with_database(config: &Config, schema: &SchemaState) -> Vec<Finding> {
    let new_folder = find_new_folder(config);
    let stand_in = match new_folder.is_some().then(make_prepared_folder).transpose() {
        Ok(folder) => folder,
        Err(error) => return vec![Finding { component: "storage", state: Err(error.to_string()) }],
    };
    let mut beside = config.clone();
    if let Some(folder) = &stand_in {
        beside.storage_url = format!("file:{}", folder.path().display());
    }
    let secrets = secrets::find(config);
    let master_secret = secrets.as_ref().ok().and_then(|found| found.master.clone());
    let store = match store::open_for_diagnosis(&beside, master_secret).await {
        Ok(store) => store,
        Err(error) => return vec![Finding { component: "database", state: Err(format!("{error:#}")) }],
    };
    let mut findings = check_opened_store(config, &store, schema, new_folder.as_deref()).await;
    let secrets = check_secrets(secrets, &store).await;
    findings.push(Finding { component: "secrets", state: secrets.map_err(|error| format!("{error:#}")) });
    // SQLite removes the files beside the database then.
    store.close().await;
    findings
}

/// The storage's folder where opening it would create or prepare it. One that cannot be looked into counts too:
/// [`describe_new_folder`] says why.
fn find_new_folder(config: &Config) -> Option<PathBuf> {
    let folder = local::parse_folder_url(&config.storage_url).ok()?;
    (!local::is_prepared_folder(&folder).unwrap_or(false)).then_some(folder)
}

/// An empty folder for objects, until it is dropped.
fn make_prepared_folder() -> std::io::Result<TempDir> {
    let folder = tempfile::tempdir()?;
    local::prepare_folder(folder.path())?;
    Ok(folder)
}

/// Says what a start would do with a storage's folder that was never prepared, or why it would refuse it.
async fn describe_new_folder(folder: &Path, store: &Store) -> Result<String, String> {
    let shown = folder.display();
    if store.has_photos().await.map_err(|error| error.to_string())? {
        return Err(format!("{shown} does not contain the photos in the database: is its disk mounted?"));
    }
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

/// Checks what is behind a store. `new_folder` is the storage's folder where the store was opened with another in its place.
async fn check_opened_store(
    config: &Config,
    store: &Store,
    schema: &SchemaState,
    new_folder: Option<&Path>,
) -> Vec<Finding> {
    let database = store.check_database().await.map(|()| describe_database(config, schema));
    let storage = match new_folder {
        Some(folder) => describe_new_folder(folder, store).await,
        None => {
            let checked = store.check_storage().await.map(|()| redact_url(&config.storage_url));
            checked.map_err(|error| error.to_string())
        }
    };
    let queue = check_queue(config, store).await;
    let mut findings = vec![
        Finding { component: "database", state: database.map_err(|error| error.to_string()) },
        Finding { component: "storage", state: storage },
        Finding { component: "queue", state: queue.map_err(|error| error.to_string()) },
        Finding { component: "photo counts", state: check_counts(store).await },
    ];
    if store.local.is_none() {
        findings
            .push(Finding { component: "bucket's versions", state: Ok(describe_versions(store).to_owned()) });
    }
    if store.local.is_none() && config.settings.console.is_enabled() {
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

/// Waits up to 3 s for the connection.
async fn check_queue(config: &Config, store: &Store) -> Result<String, StoreError> {
    let depth = store.queue.depth().await?;
    let Some(queue) = &config.queue else {
        return Ok(format!("in the database, {depth} photos wait"));
    };
    let mut checked = store.check_queue().await;
    for _ in 0..CONNECT_ATTEMPTS {
        if checked.is_ok() {
            break;
        }
        tokio::time::sleep(CONNECT_PAUSE).await;
        checked = store.check_queue().await;
    }
    checked.map(|()| format!("the stream {}, {depth} photos wait", queue.stream))
}
