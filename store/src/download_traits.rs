//! What other crates may call of downloads of many photos.

use async_trait::async_trait;

use crate::model::account::TokenDigest;
use crate::model::download::{Download, NewDownload};
use crate::traits::Result;

/// Permitted downloads.
#[async_trait]
pub trait Downloads: Send + Sync {
    /// Permits a download, and forgets those that are over. The caller has checked with [`crate::traits::Albums::get`] that
    /// the album belongs to the tenant.
    async fn create(&self, download: NewDownload) -> Result<()>;
    /// Returns a download that is not over, of an album that is not being deleted.
    async fn find(&self, digest: &TokenDigest) -> Result<Option<Download>>;
}
