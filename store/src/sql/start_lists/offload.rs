//! Work on whole lists and many photos, off the runtime's threads.

use crate::error::{StoreError, StoreErrorKind};
use crate::traits::Result;

/// Runs work that would block a thread of the runtime for too long; `operation` names it in errors.
pub(super) async fn offload<T: Send + 'static>(
    operation: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|cause| StoreError::new(StoreErrorKind::Unavailable, operation).with_source(cause))
}
