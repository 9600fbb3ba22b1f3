//! Secrets made at first start and kept in the data folder, readable by the service's user alone.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use anyhow::Context;

/// The secret under which local upload and download URLs are signed; made when there is none.
///
/// # Errors
/// When the folder cannot be written, or the file is not 32 bytes.
pub fn signing_secret(folder: &Path) -> anyhow::Result<[u8; 32]> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("making the folder {}", folder.display()))?;
    let path = folder.join("url-signing.key");
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    match made {
        Ok(mut file) => {
            let secret: [u8; 32] = rand::random();
            file.write_all(&secret).and_then(|()| file.sync_all()).context("writing the signing secret")?;
            Ok(secret)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
            bytes.try_into().map_err(|_| anyhow::anyhow!("{} is not 32 bytes long", path.display()))
        }
        Err(error) => Err(error).with_context(|| format!("making {}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_is_made_once_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let first = signing_secret(folder.path()).unwrap();
        assert_eq!(signing_secret(folder.path()).unwrap(), first);
        assert_ne!(first, [0; 32]);
    }
}
