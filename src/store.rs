//! Opens the store from the configuration, and locks what only one process may use at a time.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use photofinish_store::blobs::local;
use photofinish_store::folder::make_folder;
use photofinish_store::private::{private_file, restrict_to_owner};
use photofinish_store::traits::Keys;
use photofinish_store::{DatabaseKind, MasterSecret, Organizations, SealedSecrets, Store, StoreSettings};
use tempfile::TempDir;

use crate::config::Config;
use crate::role::Role;
use crate::secrets;

/// Opens database, storage and queue. Creates the data folder, the tables and the signing secret on first start.
///
/// # Errors
/// When the data folder, the database or the storage cannot be used.
pub async fn open_store(config: &Config) -> anyhow::Result<Store> {
    create_data_folder(&config.settings.service.data_dir)?;
    let signing_secret = secrets::load_or_create_signing_secret(&config.secrets_dir())?;
    let settings = store_settings(config, signing_secret, secrets::load_master_secret(config)?);
    Ok(Store::open(settings).await?)
}

/// A store that was opened for somebody who only looks at what is there.
pub struct ExistingStore {
    /// Has an empty folder in the place of [`Self::new_folder`], and never a message queue.
    pub store: Store,
    /// The storage's folder where a start would create or prepare it. One that cannot be looked into counts too.
    pub new_folder: Option<PathBuf>,
    /// Removes the folder in its place.
    _stand_in: Option<TempDir>,
}

impl ExistingStore {
    /// Checks that no photo is missing in a folder that was never prepared.
    ///
    /// # Errors
    /// When the database has photos, so that a start refuses this folder, or it cannot be looked into.
    pub async fn check_new_folder(&self) -> anyhow::Result<()> {
        let Some(folder) = &self.new_folder else { return Ok(()) };
        let shown = folder.display();
        local::is_prepared_folder(folder).with_context(|| format!("looking into {shown}"))?;
        if self.store.has_photos().await? {
            anyhow::bail!("{shown} does not contain the photos in the database: is its disk mounted?");
        }
        Ok(())
    }
}

/// Opens a store whose database is up to date. Creates neither the data folder nor a secret, neither the storage's folder nor the
/// stream of a message queue: it signs no URL of a local storage that anybody can use, and has no queue but the database.
///
/// # Errors
/// When the database or the storage cannot be used.
pub async fn open_existing(
    config: &Config,
    master_secret: Option<MasterSecret>,
) -> anyhow::Result<ExistingStore> {
    let new_folder = find_new_folder(config);
    let stand_in = new_folder.is_some().then(make_prepared_folder).transpose();
    let stand_in = stand_in.context("creating a temporary folder")?;
    let mut settings = store_settings(config, rand::random(), master_secret);
    settings.queue = None;
    if let Some(folder) = &stand_in {
        settings.storage_url = format!("file:{}", folder.path().display());
    }
    let store = Store::open(settings).await?;
    Ok(ExistingStore { store, new_folder, _stand_in: stand_in })
}

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

fn store_settings(
    config: &Config,
    signing_secret: [u8; 32],
    master_secret: Option<MasterSecret>,
) -> StoreSettings {
    StoreSettings {
        database_url: config.database_url.clone(),
        server_limits: config.server_limits,
        storage_url: config.storage_url.clone(),
        cloud: config.cloud.clone(),
        public_url: config.public_url.clone(),
        signing_secret,
        master_secret,
        backup_days: config.settings.secrets.backup_days,
        attempt_limit: config.settings.queue.attempt_limit as u32,
        max_cells: config.settings.pipeline.max_grid_cells,
        credits: config.settings.credits.credit_settings(),
        face_index_bytes: config.settings.api.face_index_bytes as usize,
        queue: config.queue.clone(),
    }
}

/// As [`open_readable_store`], and says in the log what the service lacks without a master secret.
///
/// # Errors
/// As of [`open_readable_store`].
pub async fn open_for_service(config: &Config) -> anyhow::Result<Store> {
    let store = open_readable_store(config).await?;
    if !store.erasures.can_sign() {
        tracing::warn!(
            "PHOTOFINISH_SECRET_KEY is missing: no webhooks, no galleries, no receipts of erasures, and replicas do not know \
             each other's paid cursors"
        );
    }
    if store.local.is_none() {
        // It leaves an object in the bucket, by which a start that finds photos in the database and none there knows the place
        // again. Not waited for: whether the bucket responds is a matter of readiness.
        let checked = store.clone();
        tokio::spawn(async move { drop(checked.check_storage().await) });
    }
    Ok(store)
}

/// As [`open_store`], with secrets in the database that can be opened. Else this fails at the start, in every role: not at the
/// first webhook that is sent to, nor, in a worker, at the first photo of an album with erased bibs.
///
/// # Errors
/// As [`open_store`]; when the secrets cannot be opened, with the setting that is missing or wrong.
pub async fn open_readable_store(config: &Config) -> anyhow::Result<Store> {
    let store = open_store(config).await?;
    check_sealed_secrets(&store).await?;
    Ok(store)
}

/// Checks that the secrets in the database can be opened.
///
/// # Errors
/// When they cannot, with the setting that is missing or wrong.
pub async fn check_sealed_secrets(store: &Store) -> anyhow::Result<()> {
    match store.check_sealed_secrets().await? {
        SealedSecrets::Readable => Ok(()),
        SealedSecrets::NoMasterSecret => {
            anyhow::bail!("PHOTOFINISH_SECRET_KEY is missing: secrets in the database are sealed with it")
        }
        SealedSecrets::OtherMasterSecret => anyhow::bail!(
            "PHOTOFINISH_SECRET_KEY is another key than the one with which secrets in the database are sealed: give that \
             one as PHOTOFINISH_SECRET_KEY_OLD"
        ),
    }
}

/// Opens the API keys alone. Needs the database but not the storage.
///
/// # Errors
/// When the data folder or the database cannot be used.
pub async fn open_keys(config: &Config) -> anyhow::Result<Arc<dyn Keys>> {
    create_data_folder(&config.settings.service.data_dir)?;
    Ok(photofinish_store::open_keys(&config.database_url, &config.server_limits).await?)
}

/// Opens the organizations alone. Needs the database but not the storage.
///
/// # Errors
/// When the data folder or the database cannot be used.
pub async fn open_organizations(config: &Config) -> anyhow::Result<Organizations> {
    create_data_folder(&config.settings.service.data_dir)?;
    let credits = config.settings.credits.credit_settings();
    Ok(photofinish_store::open_organizations(&config.database_url, &config.server_limits, credits).await?)
}

/// Applies all pending migrations.
///
/// # Errors
/// When the data folder or the database cannot be used.
pub async fn migrate(config: &Config) -> anyhow::Result<()> {
    create_data_folder(&config.settings.service.data_dir)?;
    Ok(photofinish_store::migrate(&config.database_url).await?)
}

/// File locks of an embedded database, released when dropped. Exclusive for role `all`, which reclaims every lease when it
/// starts; shared otherwise.
pub struct EmbeddedLocks {
    _data_dir: File,
    /// Two data folders may name the same database file.
    _database: File,
}

impl EmbeddedLocks {
    /// Locks data folder and database file. Returns `None` for a database server: any number of processes may use it, and
    /// their leases expire by themselves.
    ///
    /// # Errors
    /// When another process has a conflicting lock.
    pub fn acquire(config: &Config, role: Role) -> anyhow::Result<Option<Self>> {
        if DatabaseKind::from_url(&config.database_url) != Some(DatabaseKind::Sqlite) {
            return Ok(None);
        }
        create_data_folder(&config.settings.service.data_dir)?;
        let is_exclusive = role == Role::All;
        let data_dir = lock_data_dir(&config.settings.service.data_dir, is_exclusive)?;
        let database = photofinish_store::lock_database(&config.database_url, is_exclusive)?;
        Ok(database.map(|database| Self { _data_dir: data_dir, _database: database }))
    }
}

fn lock_data_dir(data_dir: &Path, is_exclusive: bool) -> anyhow::Result<File> {
    let path = data_dir.join("photofinish.lock");
    let file = private_file().write(true).create(true).truncate(true).open(&path);
    let file = file.with_context(|| format!("creating {}", path.display()))?;
    restrict_to_owner(&path);
    let locked = if is_exclusive { file.try_lock() } else { file.try_lock_shared() };
    match locked {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            anyhow::bail!("another photofinish works on the data folder {}", data_dir.display())
        }
        Err(TryLockError::Error(error)) => Err(error).context("locking the data folder"),
    }
}

/// Creates the data folder, or takes an existing one from everybody but the service's user: it contains photos of people,
/// a database of their faces, and secrets.
fn create_data_folder(data_dir: &Path) -> anyhow::Result<()> {
    make_folder(data_dir).with_context(|| format!("creating the data folder {}", data_dir.display()))?;
    restrict_to_owner(data_dir);
    Ok(())
}
