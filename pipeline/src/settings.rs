//! The settings of the pipeline, what it depends on, and default numbers of threads.

use std::sync::Arc;
use std::time::Duration;

use photofinish_models::traits::ModelFactory;
use photofinish_store::traits::{Blobs, Queue, Watermarks};

use crate::engine::cpu_shares::ReservedCores;

/// The settings that the operator decides.
#[derive(Clone, Debug)]
pub struct PipelineSettings {
    /// The most threads that compute at once, of all stages and devices together; at least 2 are allowed.
    pub cores: usize,
    /// Threads of each device that decode. Decoding is the largest part of the work: one thread per core is right, also where
    /// several devices share the cores, because photos may come to one of them alone.
    pub decode_threads: usize,
    /// Threads of each device that resize and encode.
    pub resize_threads: usize,
    /// Threads that read from the object storage, for all devices together.
    pub fetch_threads: usize,
    /// Threads of each device that detect faces; each loads its own model.
    pub detect_threads: usize,
    /// Threads of each device that embed faces; each loads its own model.
    pub embed_threads: usize,
    /// Threads of each device that read bibs; each loads two models.
    pub read_threads: usize,
    /// Bytes of encoded files that all photos in flight may use together. Each device has an equal part.
    pub file_budget_bytes: usize,
    /// Bytes of pixels that all photos in flight may use together. Each device has an equal part.
    pub pixel_budget_bytes: usize,
    /// The limits of a single photo.
    pub limits: Limits,
    /// The most cells into which a photo is divided for each network, in albums in grid mode; at least 1.
    pub max_grid_cells: u32,
    /// The most runners of a photo whose bibs are read, largest first; at least 1.
    pub max_runners: usize,
    /// How long a lease is valid unless it is renewed. It is renewed after each third of this time.
    pub lease_ttl: Duration,
    /// How long one call of a device may take. One that takes longer never returns, and ends what uses the device.
    pub device_call_limit: Duration,
    /// How long [`Pipeline::stop`](crate::Pipeline::stop) waits for photos in flight before it gives them back.
    pub drain_grace: Duration,
}

impl PipelineSettings {
    /// Returns the settings of one of several lanes. Threads that wait for the storage are divided, two at least where there
    /// were two. Those that compute are not: together they have no more cores than one lane alone would, whatever their number.
    pub(crate) fn for_lane_of(&self, lanes: usize) -> Self {
        let lanes = lanes.max(1);
        Self {
            fetch_threads: self.fetch_threads.div_ceil(lanes).max(self.fetch_threads.min(2)),
            file_budget_bytes: self.file_budget_bytes / lanes,
            pixel_budget_bytes: self.pixel_budget_bytes / lanes,
            ..self.clone()
        }
    }
}

/// The limits of one photo or selfie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest file, in bytes.
    pub max_file_bytes: u64,
    /// The most pixels, checked in the file's header before memory is allocated for them.
    pub max_pixels: u64,
    /// Whether HEIC is read. Without the cargo feature `heic` it is not, whatever this says.
    pub reads_heic: bool,
}

/// What the pipeline depends on.
#[derive(Clone)]
pub struct PipelineDependencies {
    /// Where photos are leased and results are written.
    pub queue: Arc<dyn Queue>,
    /// Where original files are read and previews are written.
    pub blobs: Arc<dyn Blobs>,
    /// Where the watermarks of albums are read.
    pub watermarks: Arc<dyn Watermarks>,
    /// Load the models, each on a device of its own; at least one. Each device processes photos with threads of its own, and
    /// leases as many as it has room for.
    pub models: Vec<Arc<dyn ModelFactory>>,
    /// The runtime for calls of the store; its timers must be enabled.
    pub runtime: tokio::runtime::Handle,
    /// The cores that photos leave to the selfies of the same process.
    pub reserved_cores: ReservedCores,
}

/// The most threads for each stage whose networks are on a device: one prepares a batch while the device computes another.
/// The detector prepares frames, the reader torsos and strips, which take longer than the device.
const DEVICE_THREADS: usize = 2;
const DEVICE_PREPARING_THREADS: usize = 4;

/// The most threads that read from the storage where no device makes the cores faster: enough for 200 photos a second from a
/// storage that takes 150 ms for a photo.
const MAX_FETCH_THREADS: usize = 32;

/// The numbers of threads per stage.
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
    /// Returns the numbers of threads for a machine with `cores` cores and no accelerator.
    ///
    /// Decoding takes nearly half of the CPU time of a photo, and a decoder needs little memory: one thread per core.
    /// Reading bibs takes a third, and the models of a reader need 150 to 400 MB: one thread per two cores. The cheaper
    /// stages get one thread per four cores. Together these are more threads than cores on purpose: a stage without
    /// input sleeps, and any stage can then use a core that the others leave.
    ///
    /// A thread that reads files does nothing but wait, one photo at a time: some 150 ms for one in a bucket, less than a
    /// core needs for one of 24 megapixels. One thread per core therefore reads what the cores need. How much is in memory does
    /// not depend on their number: the file budget bounds it.
    ///
    /// A very large photo takes seconds to decode and .3 s to resize (144 megapixels), in one step. There is one such photo
    /// at a time, and always a second thread for those of others.
    pub fn for_cores(cores: usize) -> Self {
        let cores = cores.max(1);
        let quarter = cores.div_ceil(4);
        Self {
            decode: cores.max(2),
            resize: quarter.max(2),
            fetch: cores.clamp(2, MAX_FETCH_THREADS),
            detect: quarter,
            embed: quarter,
            read: cores.div_ceil(2),
        }
    }

    /// Returns the numbers of threads for a machine with `cores` cores and a device for the networks.
    ///
    /// Photos that wait for a network are the next batch of one thread: more threads would make smaller batches, and each
    /// keeps networks in the memory of the device. The cores then process several times as many photos, whose files have
    /// to be read meanwhile: one thread per core.
    pub fn for_device(cores: usize) -> Self {
        let processor = Self::for_cores(cores);
        let half = cores.max(1).div_ceil(2);
        Self {
            fetch: cores.max(2),
            detect: half.min(DEVICE_PREPARING_THREADS),
            embed: half.min(DEVICE_THREADS),
            read: half.min(DEVICE_PREPARING_THREADS),
            ..processor
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_wait_for_the_storage_are_as_many_as_cores() {
        let fetch = |cores: usize| ThreadCounts::for_cores(cores).fetch;
        assert_eq!([0, 1, 2, 3, 16, 32, 33, 256].map(fetch), [2, 2, 2, 3, 16, 32, 32, 32]);
        // A device makes the cores several times as fast.
        let beside_device = |cores: usize| ThreadCounts::for_device(cores).fetch;
        assert_eq!([0, 1, 2, 16, 64].map(beside_device), [2, 2, 2, 16, 64]);
    }
}
