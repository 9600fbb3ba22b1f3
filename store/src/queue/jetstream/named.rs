//! Finds the messages of the stream that name erased photos. They are ids only, but the photos are gone.

use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};

use super::message;
use super::stream::{WorkStream, unavailable_because};
use crate::traits::{PhotoRef, Result};

const OPERATION: &str = "look for erased photos in the queue";

/// What is in the stream.
#[derive(Debug, Default)]
pub(crate) struct NamedPhotos {
    /// How many messages there are.
    pub(crate) looked: u64,
    /// What they name, a photo for each message that names one.
    pub(crate) photos: Vec<PhotoRef>,
}

impl WorkStream {
    /// Looks at all messages, a request each: they are as many as the workers hold and some more.
    pub(super) async fn list_named(&self) -> Result<NamedPhotos> {
        let stream = self.get_stream(OPERATION).await?;
        let mut named = NamedPhotos::default();
        self.for_each_message(&stream, |_, photo| {
            named.looked += 1;
            named.photos.extend(photo);
        })
        .await?;
        Ok(named)
    }

    /// Deletes the messages of these photos. One that a worker has is acknowledged to nobody.
    pub(super) async fn delete_named(&self, is_erased: impl Fn(&PhotoRef) -> bool) -> Result<()> {
        let stream = self.get_stream(OPERATION).await?;
        let mut named = Vec::new();
        self.for_each_message(&stream, |sequence, photo| {
            if photo.is_some_and(|photo| is_erased(&photo)) {
                named.push(sequence);
            }
        })
        .await?;
        for sequence in named {
            // One that was acknowledged meanwhile is gone too.
            if let Err(cause) = stream.delete_message(sequence).await {
                tracing::debug!(%cause, sequence, "failed to delete a message of an erased photo");
            }
        }
        Ok(())
    }

    async fn for_each_message(
        &self,
        stream: &Stream,
        mut visit: impl FnMut(u64, Option<PhotoRef>),
    ) -> Result<()> {
        let mut next = 1;
        loop {
            match stream.get_first_raw_message_by_subject(self.subject(), next).await {
                Ok(message) => {
                    let named = message::decode(&message.payload).map(|queued| queued.photo);
                    visit(message.sequence, named);
                    next = message.sequence + 1;
                }
                Err(cause) if cause.kind() == LastRawMessageErrorKind::NoMessageFound => return Ok(()),
                Err(cause) => return Err(unavailable_because(OPERATION)(cause)),
            }
        }
    }
}
