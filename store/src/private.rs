//! Files and folders that the service's user alone may open: they are photos of people, secrets and a database of both.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// The permissions of group and others.
const OTHERS: u32 = 0o077;

/// The bit of a folder in which everybody may create files, such as `/tmp`.
const STICKY: u32 = 0o1000;

/// Returns options with which a file is created for its owner alone.
pub fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE);
    options
}

/// Returns a builder with which a folder is created for its owner alone.
pub fn private_folder() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(FOLDER_MODE);
    builder
}

/// Takes the permissions on an existing file or folder from everybody but its owner, with a log line. Other versions
/// created it for everybody to read. Changes nothing that is missing, and no folder that is there for everybody (`/`, and
/// those like `/tmp`). A failure is only logged: in a container the folder may be a mount of another owner.
pub fn restrict_to_owner(path: &Path) {
    match restrict(path) {
        Ok(Some(mode)) => {
            let was = format!("{mode:04o}");
            tracing::info!(path = %path.display(), was, "restricted permissions to the service's user");
        }
        Ok(None) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            let path = path.display();
            tracing::info!(%path, %error, "failed to restrict permissions to the service's user");
        }
    }
}

/// Returns the previous permissions if it changed them.
fn restrict(path: &Path) -> io::Result<Option<u32>> {
    let path = path.canonicalize()?;
    let mode = fs::metadata(&path)?.permissions().mode() & 0o7777;
    if mode & OTHERS == 0 || mode & STICKY != 0 || path.parent().is_none() {
        return Ok(None);
    }
    fs::set_permissions(&path, Permissions::from_mode(mode & !OTHERS))?;
    Ok(Some(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn group_and_others_lose_their_permissions_and_the_owner_keeps_all() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "x").unwrap();
        for (before, after) in [(0o644, 0o600), (0o664, 0o600), (0o755, 0o700), (0o400, 0o400)] {
            fs::set_permissions(&file, Permissions::from_mode(before)).unwrap();
            restrict_to_owner(&file);
            assert_eq!(mode(&file), after, "{before:o}");
        }
        restrict_to_owner(&folder.path().join("missing"));
    }

    #[test]
    fn a_folder_for_everybody_stays_one() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
        restrict_to_owner(folder.path());
        assert_eq!(mode(folder.path()), 0o1777);
        assert_eq!(restrict(Path::new("/")).unwrap(), None);
    }
}
