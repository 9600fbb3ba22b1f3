//! Message queues beside the database that offer photos to workers.

pub(crate) mod jetstream;
