//! Assembles the stages into a generation: the one place that knows their order, the capacity of the channel (edge)
//! between each pair, and what each stage needs.
//!
//! | edge into | capacity | reason |
//! |---|---|---|
//! | fetch | [`LEASED_CAPACITY`] | leases need no memory; one lease call feeds seconds of work |
//! | decode | [`FETCHED_CAPACITY`] | the file budget limits the bytes; enough that decoding does not wait for storage |
//! | resize | [`DECODED_CAPACITY`] | decoded photos are the largest; one waits while another is resized |
//! | detect, embed, read | [`PIXELS_CAPACITY`], or more to fill batches | 9 MB each; evens out photos with many faces |
//! | index | [`READ_CAPACITY`] | previews only; one whole transaction |
//!
//! Each organization has this capacity for itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::bounded;
use photofinish_kernels::resize::Resizer;
use photofinish_models::traits::ModelFactory;
use photofinish_store::traits::Lease;

use crate::engine::budget::{Budget, BudgetRequest, Budgets, OversizePlace};
use crate::engine::cpu_shares::CpuShares;
use crate::engine::edge::{Inlet, edge};
use crate::engine::fault::{Component, Outage};
use crate::engine::generation::{EXIT_TIMEOUT, ExitLimits, Generation, StageSpec, StageThreads};
use crate::engine::outlet::Outlet;
use crate::engine::runner::StageFactory;
use crate::engine::status::SharedState;
use crate::engine::store_client::{KillSwitch, StoreClient};
use crate::engine::supervisor::{GenerationFactory, PendingGeneration};
use crate::image::decoder::Decoder;
use crate::image::pool::BufferPool;
use crate::settings::{PipelineDependencies, PipelineSettings};
use crate::stages::decode::Decode;
use crate::stages::detect::Detect;
use crate::stages::embed::Embed;
use crate::stages::feed::{Feed, SuspectPatience};
use crate::stages::fetch::Fetch;
use crate::stages::grid;
use crate::stages::index::Index;
use crate::stages::long_photos::LongPhotos;
use crate::stages::read::{PatternCache, Read};
use crate::stages::resize::Resize;
use crate::stages::watermarks::WatermarkCache;

const LEASED_CAPACITY: usize = 32;
const FETCHED_CAPACITY: usize = 8;
const DECODED_CAPACITY: usize = 2;
const PIXELS_CAPACITY: usize = 2;
const READ_CAPACITY: usize = 64;

/// The average number of faces in a race photo, which says how many photos fill a batch of the embedder. Larger batches
/// of photos would only keep more pixels waiting.
const FACES_PER_PHOTO: usize = 3;

/// Photos per transaction: below, the time of commits dominates; above, nothing is gained.
const INDEX_BATCH: usize = 64;

/// What the generations of a lane are made of.
pub(crate) struct Assembly {
    /// Those of the lane.
    pub(crate) settings: PipelineSettings,
    pub(crate) dependencies: PipelineDependencies,
    /// Loads the models on the device of the lane.
    pub(crate) models: Arc<dyn ModelFactory>,
    pub(crate) shared: Arc<SharedState>,
    /// All generations of all lanes share the pool of buffers and the cores. Each has its own budgets, because closing one ends
    /// it.
    pub(crate) pool: BufferPool,
    pub(crate) cpu_shares: CpuShares,
    /// For a photo that needs more pixels than a lane's budget is meant for: one in all lanes.
    pub(crate) oversize_pixels: OversizePlace,
}

/// Returns how many photos with cells may be in flight at once: one for each thread that reads, and half as many that
/// earlier stages work on meanwhile. More would only keep the memory and the threads that photos of others need.
fn long_photo_seats(read_threads: usize) -> usize {
    read_threads.max(1) + read_threads.max(1).div_ceil(2)
}

impl Assembly {
    /// Returns the function that starts generations of these stages.
    pub(crate) fn into_generation_factory(self) -> GenerationFactory {
        Box::new(move |kill_switch| self.start_generation(kill_switch))
    }

    /// Starts the threads of all stages but the feed, which the supervisor starts when they are ready.
    fn start_generation(&self, kill_switch: KillSwitch) -> Result<PendingGeneration, Outage> {
        let store =
            StoreClient { runtime: self.dependencies.runtime.clone(), kill_switch: kill_switch.clone() };
        let (leased_tx, leased_rx) = edge(LEASED_CAPACITY);
        let max_cells = self.settings.max_grid_cells;
        let long_photos = LongPhotos::new(long_photo_seats(self.settings.read_threads), move |config| {
            grid::has_cells(config, max_cells)
        });
        let (wakeup_tx, wakeup_rx) = bounded(1);
        let is_draining = Arc::new(AtomicBool::new(false));
        let feed = Feed {
            leases: Arc::clone(&self.shared.leases),
            suspect_gate: Arc::clone(&self.shared.suspect_gate),
            store: store.clone(),
            outlet: leased_tx,
            long_photos,
            wakeup: wakeup_rx,
            is_draining: Arc::clone(&is_draining),
            lease_ttl: self.settings.lease_ttl,
            suspect_patience: SuspectPatience::default(),
            stats: self.shared.stats.stage("feed"),
        };
        let budgets = Budgets {
            files: Budget::new(self.settings.file_budget_bytes),
            pixels: Budget::with_place(self.settings.pixel_budget_bytes, self.oversize_pixels.clone()),
        };
        let cpu_shares = self.cpu_shares.for_generation();
        let mut threads = StageThreads::new(store.clone(), Arc::clone(&self.shared.stats), cpu_shares);
        let spawned = self.spawn_stages(&mut threads, &store, &budgets, leased_rx);
        let generation = Generation { threads, kill_switch, is_draining, wakeup: wakeup_tx, budgets };
        if let Err(outage) = spawned {
            // The feed owns the sender of the first edge: until it is dropped the stages do not drain.
            drop(feed);
            generation.terminate(&ExitLimits::fixed(EXIT_TIMEOUT), Vec::new());
            return Err(outage);
        }
        let start_feed = Box::new(move |generation: &mut Generation| {
            generation.threads.spawn_thread("feed", 0, move || feed.run())
        });
        Ok(PendingGeneration { generation, start_feed })
    }

    /// Spawns the threads of all stages after the feed, in the order in which a photo passes them.
    fn spawn_stages(
        &self,
        threads: &mut StageThreads,
        store: &StoreClient,
        budgets: &Budgets,
        leased_rx: Inlet<Arc<Lease>, BudgetRequest>,
    ) -> Result<(), Outage> {
        let settings = &self.settings;
        let batch = self.models.batch_sizes();
        let embed_batch = batch.embed.div_ceil(FACES_PER_PHOTO);

        // A thread that waits for a device needs no core. Beside its calls it computes too: how much, depends on the photo.
        let uses_cores = self.models.uses_cores();

        let fetch = StageSpec::new("fetch", settings.fetch_threads, 1, self.fetch_factory(store, budgets));
        let decode = StageSpec::new("decode", settings.decode_threads, 1, self.decode_factory(budgets))
            .with_low_priority()
            .with_shares(true);
        let resize = StageSpec::new("resize", settings.resize_threads, 1, self.resize_factory())
            .with_low_priority()
            .with_shares(true);
        let detect = StageSpec::new("detect", settings.detect_threads, batch.detect, self.detect_factory())
            .with_low_priority()
            .with_shares(uses_cores);
        let embed = StageSpec::new("embed", settings.embed_threads, embed_batch, self.embed_factory())
            .with_low_priority()
            .with_shares(uses_cores);
        let read = StageSpec::new("read", settings.read_threads, batch.read, self.read_factory(store))
            .with_low_priority()
            .with_shares(uses_cores);
        let index = StageSpec::new("index", 1, INDEX_BATCH, self.index_factory(store));

        let (fetched_tx, fetched_rx) = edge(FETCHED_CAPACITY);
        let (decoded_tx, decoded_rx) = edge(DECODED_CAPACITY);
        let (sized_tx, sized_rx) = edge(PIXELS_CAPACITY.max(2 * batch.detect));
        let (detected_tx, detected_rx) = edge(PIXELS_CAPACITY.max(embed_batch));
        let (embedded_tx, embedded_rx) = edge(PIXELS_CAPACITY.max(2 * batch.read));
        let (read_tx, read_rx) = edge(READ_CAPACITY);

        threads.spawn_stage(fetch, leased_rx, Outlet::to(fetched_tx))?;
        threads.spawn_stage(decode, fetched_rx, Outlet::to(decoded_tx))?;
        threads.spawn_stage(resize, decoded_rx, Outlet::to(sized_tx))?;
        threads.spawn_stage(detect, sized_rx, Outlet::to(detected_tx))?;
        threads.spawn_stage(embed, detected_rx, Outlet::to(embedded_tx))?;
        threads.spawn_stage(read, embedded_rx, Outlet::to(read_tx))?;
        threads.spawn_stage(index, read_rx, Outlet::Terminal(Index::to_outcome))
    }

    fn fetch_factory(&self, store: &StoreClient, budgets: &Budgets) -> StageFactory<Fetch> {
        let (blobs, store_client) = (Arc::clone(&self.dependencies.blobs), store.clone());
        let (file_budget, limits) = (budgets.files.clone(), self.settings.limits);
        let watermarks = Arc::new(WatermarkCache::new(Arc::clone(&self.dependencies.watermarks)));
        let pool = self.pool.clone();
        Arc::new(move || {
            Ok(Fetch {
                blobs: Arc::clone(&blobs),
                store_client: store_client.clone(),
                file_budget: file_budget.clone(),
                limits,
                watermarks: Arc::clone(&watermarks),
                pool: pool.clone(),
            })
        })
    }

    fn decode_factory(&self, budgets: &Budgets) -> StageFactory<Decode> {
        let (limits, max_cells) = (self.settings.limits, self.settings.max_grid_cells);
        let (pool, pixel_budget) = (self.pool.clone(), budgets.pixels.clone());
        Arc::new(move || {
            let decoder =
                Decoder::new(limits, pool.clone()).map_err(|error| jpeg_outage("decode", &error))?;
            Ok(Decode { decoder, pixel_budget: pixel_budget.clone(), max_cells })
        })
    }

    fn resize_factory(&self) -> StageFactory<Resize> {
        let (pool, max_cells) = (self.pool.clone(), self.settings.max_grid_cells);
        Arc::new(move || Resize::new(pool.clone(), max_cells).map_err(|error| jpeg_outage("resize", &error)))
    }

    fn detect_factory(&self) -> StageFactory<Detect> {
        let (models, max_cells) = (Arc::clone(&self.models), self.settings.max_grid_cells);
        let shared = Arc::clone(&self.shared);
        Arc::new(move || {
            let (detector, resizer) = (models.create_face_detector()?, Resizer::default());
            let mut stage = Detect { detector, resizer, max_cells };
            if shared.is_device_suspect.load(Ordering::Acquire) {
                stage.try_network()?;
            }
            Ok(stage)
        })
    }

    fn embed_factory(&self) -> StageFactory<Embed> {
        let (models, shared) = (Arc::clone(&self.models), Arc::clone(&self.shared));
        Arc::new(move || {
            let mut stage = Embed::new(models.create_face_embedder()?, models.batch_sizes().embed);
            if shared.is_device_suspect.load(Ordering::Acquire) {
                stage.try_network()?;
            }
            Ok(stage)
        })
    }

    fn read_factory(&self, store: &StoreClient) -> StageFactory<Read> {
        let models = Arc::clone(&self.models);
        let (max_cells, max_runners) = (self.settings.max_grid_cells, self.settings.max_runners);
        let (kill_switch, shared) = (store.kill_switch.clone(), Arc::clone(&self.shared));
        Arc::new(move || {
            let (resizer, patterns) = (Resizer::default(), PatternCache::default());
            let mut reader = models.create_bib_reader()?;
            reader.end_when_set(kill_switch.interrupt().clone());
            let mut stage = Read { reader, resizer, patterns, max_cells, max_runners };
            if shared.is_device_suspect.load(Ordering::Acquire) {
                stage.try_network()?;
            }
            Ok(stage)
        })
    }

    fn index_factory(&self, store: &StoreClient) -> StageFactory<Index> {
        let (queue, blobs) = (Arc::clone(&self.dependencies.queue), Arc::clone(&self.dependencies.blobs));
        let (leases, store_client) = (Arc::clone(&self.shared.leases), store.clone());
        let lease_ttl = self.settings.lease_ttl;
        Arc::new(move || {
            let (queue, blobs, leases) = (Arc::clone(&queue), Arc::clone(&blobs), Arc::clone(&leases));
            Ok(Index { queue, blobs, leases, lease_ttl, store_client: store_client.clone() })
        })
    }
}

fn jpeg_outage(stage: &'static str, error: &turbojpeg::Error) -> Outage {
    Outage::new(Component::Stage(stage), format!("libjpeg-turbo: {error}"))
}
