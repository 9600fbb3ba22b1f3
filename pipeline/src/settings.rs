//! What the operator decides about the pipeline, and what suits a machine that nobody has decided about.

use std::sync::Arc;
use std::time::Duration;

use photofinish_models::traits::ModelFactory;
use photofinish_store::traits::{Blobs, Queue};

/// What the operator decides.
#[derive(Clone, Debug)]
pub struct PipelineSettings {
    /// Threads that decode: the most work there is, so one per core.
    pub decode_threads: usize,
    /// Threads that resize and encode.
    pub resize_threads: usize,
    /// Threads that wait for storage.
    pub fetch_threads: usize,
    /// Threads that find faces; each owns a network.
    pub detect_threads: usize,
    /// Threads that embed faces; each owns a network.
    pub embed_threads: usize,
    /// Threads that read bibs; each owns two networks.
    pub read_threads: usize,
    /// Bytes of files that all photos together may hold (budget A).
    pub file_budget_bytes: usize,
    /// Bytes of pixels that all photos together may hold (budget B).
    pub pixel_budget_bytes: usize,
    /// What one photo may be.
    pub limits: Limits,
    /// How long a lease holds unless it is renewed; it is renewed every third of this.
    pub lease_ttl: Duration,
    /// How long `stop` waits for what is in flight before it gives it back.
    pub drain_grace: Duration,
}

/// What one photo, or one selfie, may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest file.
    pub max_file_bytes: u64,
    /// Most pixels, as its header says, before anything is allocated for them.
    pub max_pixels: u64,
}

/// What the pipeline works with.
#[derive(Clone)]
pub struct PipelineDependencies {
    /// Where work comes from and results go.
    pub queue: Arc<dyn Queue>,
    /// Where bytes come from and pictures go.
    pub blobs: Arc<dyn Blobs>,
    /// Makes the networks.
    pub models: Arc<dyn ModelFactory>,
    /// Where the store's futures run; with timers enabled.
    pub runtime: tokio::runtime::Handle,
}

/// Threads that suit a machine with `cores` cores and no accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadCounts {
    /// See [`PipelineSettings::decode_threads`].
    pub decode: usize,
    /// See [`PipelineSettings::resize_threads`].
    pub resize: usize,
    /// See [`PipelineSettings::fetch_threads`].
    pub fetch: usize,
    /// See [`PipelineSettings::detect_threads`].
    pub detect: usize,
    /// See [`PipelineSettings::embed_threads`].
    pub embed: usize,
    /// See [`PipelineSettings::read_threads`].
    pub read: usize,
}

impl ThreadCounts {
    /// Of a photo's CPU decoding takes nearly half, and a decoder is light: one per core.
    /// Reading takes a third, and a reader's networks take 150 to 400 MB: one per two cores. The cheap stages share.
    /// More threads than cores is right: a stage whose inlet is empty sleeps, and any stage can then use a core that
    /// the others leave.
    pub fn for_cores(cores: usize) -> Self {
        let cores = cores.max(1);
        let shared = cores.div_ceil(4);
        Self {
            decode: cores,
            resize: shared,
            fetch: 2,
            detect: shared,
            embed: shared,
            read: cores.div_ceil(2),
        }
    }
}
