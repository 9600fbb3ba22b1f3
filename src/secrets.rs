//! Secrets created at first start and kept in the data folder, readable by the service's user only.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::Context;
use photofinish_store::private::{private_file, private_folder, restrict_to_owner};

/// Reads the secret that signs local upload and download URLs; creates it when there is none.
///
/// # Errors
/// When the folder cannot be written, or the file is not 32 bytes.
pub fn load_or_create_signing_secret(folder: &Path) -> anyhow::Result<[u8; 32]> {
    private_folder()
        .recursive(true)
        .create(folder)
        .with_context(|| format!("creating the folder {}", folder.display()))?;
    // Locked until the end: two processes may start on a new folder at the same moment.
    let lock = File::open(folder).with_context(|| format!("opening {}", folder.display()))?;
    lock.lock().with_context(|| format!("locking {}", folder.display()))?;
    let path = folder.join("url-signing.key");
    restrict_to_owner(folder);
    restrict_to_owner(&path);
    match std::fs::read(&path) {
        Ok(bytes) => bytes.try_into().map_err(|_| anyhow::anyhow!("{} is not 32 bytes long", path.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let secret: [u8; 32] = rand::random();
            write_atomically(&secret, &path)
                .and_then(|()| lock.sync_all())
                .context("writing the signing secret")?;
            Ok(secret)
        }
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
    }
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
}
