//! Secrets created at first start and kept in the data folder, readable by the service's user only.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use photofinish_store::folder::make_folder;
use photofinish_store::private::{private_file, restrict_to_owner};
use photofinish_store::{DatabaseKind, MasterSecret};

use crate::config::Config;
use crate::config::secrets::{SecretSource, decode_secret};

const SIGNING_SECRET: &str = "url-signing.key";
const MASTER_SECRET: &str = "master.key";

/// What a start would find.
pub struct FoundSecrets {
    /// As of [`load_master_secret`], and `None` where a start would create it.
    pub master: Option<MasterSecret>,
    /// The files that a start would create.
    pub missing: Vec<PathBuf>,
}

/// Reads the secrets that there are, and creates none.
///
/// # Errors
/// When a file cannot be read or does not contain 32 bytes.
pub fn find(config: &Config) -> anyhow::Result<FoundSecrets> {
    let mut missing = Vec::new();
    let mut read = |name: &str| {
        let path = config.secrets_dir().join(name);
        let secret = read_created(&path)?;
        if secret.is_none() {
            missing.push(path);
        }
        anyhow::Ok(secret)
    };
    read(SIGNING_SECRET)?;
    let master = master_secret(config, || read(MASTER_SECRET))?;
    Ok(FoundSecrets { master, missing })
}

/// Reads the secret that signs local upload and download URLs; creates it when there is none.
///
/// # Errors
/// When the folder cannot be written, or the file is not 32 bytes.
pub fn load_or_create_signing_secret(folder: &Path) -> anyhow::Result<[u8; 32]> {
    load_or_create(folder, SIGNING_SECRET)
}

/// Returns the secret that seals those in the database: the one that is configured, else, for an embedded database, one that
/// is created at first start. `None` for a server without one: all processes of a server must have the same.
///
/// # Errors
/// When a file cannot be read or does not contain 32 bytes.
pub fn load_master_secret(config: &Config) -> anyhow::Result<Option<MasterSecret>> {
    master_secret(config, || load_or_create(&config.secrets_dir(), MASTER_SECRET).map(Some))
}

/// As [`load_master_secret`]; `created` returns the one that is created at first start.
fn master_secret(
    config: &Config,
    created: impl FnOnce() -> anyhow::Result<Option<[u8; 32]>>,
) -> anyhow::Result<Option<MasterSecret>> {
    let settings = &config.settings.secrets;
    let current = match &settings.secret_key {
        Some(source) => Some(read_secret(source, "PHOTOFINISH_SECRET_KEY")?),
        None if DatabaseKind::from_url(&config.database_url) == Some(DatabaseKind::Sqlite) => created()?,
        None => None,
    };
    let Some(current) = current else { return Ok(None) };
    let old = settings.secret_key_old.as_ref();
    let old = old.map(|source| read_secret(source, "PHOTOFINISH_SECRET_KEY_OLD")).transpose()?;
    Ok(Some(MasterSecret::new(current, old)))
}

fn read_secret(source: &SecretSource, setting: &str) -> anyhow::Result<[u8; 32]> {
    let path = match source {
        SecretSource::Given(secret) => return Ok(*secret),
        SecretSource::File(path) => path,
    };
    let bytes = std::fs::read(path).with_context(|| format!("{setting}: reading {}", path.display()))?;
    // Bare, as a secret that was created at first start, or in base64.
    let decode = || decode_secret(std::str::from_utf8(&bytes).ok()?);
    let wrong = || anyhow::anyhow!("{setting}: {} must contain 32 bytes or their base64", path.display());
    bytes.as_slice().try_into().ok().or_else(decode).ok_or_else(wrong)
}

fn load_or_create(folder: &Path, name: &str) -> anyhow::Result<[u8; 32]> {
    make_folder(folder).with_context(|| format!("creating the folder {}", folder.display()))?;
    // Locked until the end: two processes may start on a new folder at the same moment.
    let lock = File::open(folder).with_context(|| format!("opening {}", folder.display()))?;
    lock.lock().with_context(|| format!("locking {}", folder.display()))?;
    let path = folder.join(name);
    restrict_to_owner(folder);
    restrict_to_owner(&path);
    if let Some(secret) = read_created(&path)? {
        return Ok(secret);
    }
    let secret: [u8; 32] = rand::random();
    write_atomically(&secret, &path)
        .and_then(|()| lock.sync_all())
        .with_context(|| format!("writing {}", path.display()))?;
    Ok(secret)
}

/// `None` where it was not created yet.
fn read_created(path: &Path) -> anyhow::Result<Option<[u8; 32]>> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
    };
    let secret: anyhow::Result<[u8; 32]> =
        bytes.try_into().map_err(|_| anyhow::anyhow!("{} is not 32 bytes long", path.display()));
    secret.map(Some)
}

/// Writes all or nothing: a partial secret, left by a full disk or a power cut, would make every later start fail.
fn write_atomically(secret: &[u8], path: &Path) -> std::io::Result<()> {
    let part = path.with_extension("part");
    let mut file = private_file().write(true).create(true).truncate(true).open(&part)?;
    file.write_all(secret)?;
    file.sync_all()?;
    std::fs::rename(&part, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::config;

    #[test]
    fn the_secret_is_made_once_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let first = load_or_create_signing_secret(folder.path()).unwrap();
        assert_eq!(load_or_create_signing_secret(folder.path()).unwrap(), first);
        assert_ne!(first, [0; 32]);
    }

    #[test]
    fn a_partly_written_secret_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("url-signing.part"), [1; 7]).unwrap();
        let first = load_or_create_signing_secret(folder.path()).unwrap();
        assert_eq!(load_or_create_signing_secret(folder.path()).unwrap(), first);
        let names = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["url-signing.key"]);
    }

    #[test]
    fn what_a_start_would_find_is_read_and_nothing_is_created() {
        let folder = tempfile::tempdir().unwrap();
        let config = config(&[("PHOTOFINISH_DATA_DIR", folder.path().to_str().unwrap())]).unwrap();
        let secrets = config.secrets_dir();
        let found = find(&config).unwrap();
        assert!(found.master.is_none());
        assert_eq!(found.missing, [SIGNING_SECRET, MASTER_SECRET].map(|name| secrets.join(name)));
        assert!(!secrets.exists());
        load_or_create_signing_secret(&secrets).unwrap();
        load_master_secret(&config).unwrap();
        let found = find(&config).unwrap();
        assert!(found.master.is_some() && found.missing.is_empty(), "{:?}", found.missing);
        std::fs::write(secrets.join(MASTER_SECRET), [1; 7]).unwrap();
        assert!(find(&config).is_err());
    }
}
