//! Finds the messages of the stream that name erased photos. They are ids only, but the photos are gone.

use async_nats::jetstream::stream::{LastRawMessageErrorKind, Stream};

use super::message;
use super::stream::{WorkStream, unavailable_because};
use crate::traits::{PhotoRef, Result};

const OPERATION: &str = "look for erased photos in the queue";

/// What is in the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedMessages {
    /// How many messages there are.
    pub(crate) looked: u64,
    /// How many of them name a photo that was asked for.
    pub(crate) named: u64,
}

impl WorkStream {
    /// Looks at all messages, which are as many as the workers hold and some more, for photos of which `is_erased` is true.
    pub(super) async fn find_named(&self, is_erased: impl Fn(&PhotoRef) -> bool) -> Result<NamedMessages> {
        let stream = self.get_stream(OPERATION).await?;
        let mut found = NamedMessages::default();
        self.for_each_message(&stream, |_, photo| {
            found.looked += 1;
            found.named += u64::from(photo.is_some_and(|photo| is_erased(&photo)));
        })
        .await?;
        Ok(found)
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
