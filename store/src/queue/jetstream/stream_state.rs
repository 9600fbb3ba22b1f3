//! Whether the servers have the work stream, found out by asking alone. Whoever opens the queue creates the stream; a diagnosis
//! must not.

use super::settings::QueueSettings;
use super::stream::{connect, find_stream};
use crate::traits::Result;

/// Whether the servers have a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamState {
    /// They have none of this name: the first process that opens the queue creates it.
    Absent,
    /// They have it.
    Present,
}

/// Returns whether the servers have the stream, and changes nothing: creates and updates neither stream nor consumer, and
/// publishes nothing.
///
/// # Errors
/// `Invalid` for settings that cannot be used, `Unavailable` when no server responds, and when one has no JetStream.
pub async fn check_stream(settings: &QueueSettings) -> Result<StreamState> {
    let context = connect(settings, |options| options).await?;
    let found = find_stream(&context, &settings.stream).await?;
    Ok(if found.is_some() { StreamState::Present } else { StreamState::Absent })
}
