//! Remembers: albums, keys, photos, faces, texts, the work queue and the bytes.
//!
//! Knows nothing of HTTP, networks or pixels. The rest of the house asks through the traits of [`traits`];
//! [`Store::open`] builds the backends from URLs.

use std::path::PathBuf;
use std::sync::Arc;

use url::Url;

pub mod album;
pub mod calibration;
pub mod error;
pub mod ids;
pub mod key;
pub mod object;
pub mod photo;
pub mod traits;

/// Everything that is remembered. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    /// Organizations and keys.
    pub keys: Arc<dyn traits::Keys>,
    /// Albums.
    pub albums: Arc<dyn traits::Albums>,
    /// Photos.
    pub photos: Arc<dyn traits::Photos>,
    /// The work queue.
    pub queue: Arc<dyn traits::Queue>,
    /// Selfies.
    pub probes: Arc<dyn traits::Probes>,
    /// Bytes.
    pub blobs: Arc<dyn traits::Blobs>,
    /// Faces in memory.
    pub faces: Arc<dyn traits::FaceIndex>,
    /// Bibs.
    pub texts: Arc<dyn traits::Texts>,
}

/// What [`Store::open`] needs.
#[derive(Clone, Debug)]
pub struct StoreSettings {
    /// `sqlite:` and a path.
    pub database_url: String,
    /// `file:` and a folder.
    pub storage_url: String,
    /// What presigned local URLs begin with, for example `http://127.0.0.1:8080`.
    pub public_url: Url,
    /// Signs local URLs; 32 bytes.
    pub signing_secret: [u8; 32],
    /// How many leases of one photo may end without a word before it has failed.
    pub attempt_limit: u32,
    /// Bytes of vectors the face index may hold.
    pub face_index_bytes: usize,
    /// Where temporary files of uploads lie; on the same file system as the storage.
    pub scratch: PathBuf,
}
