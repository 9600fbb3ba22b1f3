//! Puts the stages together: the one place that knows the order, the capacity of each edge and what each stage needs.
//!
//! | edge into | capacity | why |
//! |---|---|---|
//! | fetch | [`LEASED`] | leases cost nothing; enough that one lease call feeds seconds of work |
//! | decode | [`FETCHED`] | files are bounded by budget A; some ahead, so that storage never holds decoding up |
//! | resize | [`DECODED`] | the largest things there are; one ahead of each thread |
//! | detect, embed, read | [`WITH_PIXELS`], or what fills batches | 9 MB each; enough to level out photos of many faces |
//! | index | [`READ`] | previews only; a whole transaction's worth |

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crossbeam_channel::{Receiver, Sender, bounded};
use photofinish_kernels::resize::Resizer;

use crate::engine::budget::Budget;
use crate::engine::fault::{Component, Outage};
use crate::engine::generation::{Generation, StageSpec, StageThreads};
use crate::engine::runner::{Inlet, Outlet, StageFactory};
use crate::engine::stage::Stage;
use crate::engine::store_client::{KillSwitch, StoreClient};
use crate::engine::supervisor::{GenerationFactory, PendingGeneration, SharedState};
use crate::engine::ticket::InFlight;
use crate::image::decoder::Decoder;
use crate::image::pool::PixelPool;
use crate::settings::{PipelineDependencies, PipelineSettings};
use crate::stages::decode::Decode;
use crate::stages::detect::Detect;
use crate::stages::embed::Embed;
use crate::stages::feed::Feed;
use crate::stages::fetch::Fetch;
use crate::stages::index::Index;
use crate::stages::read::{PatternCache, Read};
use crate::stages::resize::Resize;

const LEASED_CAPACITY: usize = 32;
const FETCHED_CAPACITY: usize = 8;
const DECODED_CAPACITY: usize = 2;
const PIXELS_CAPACITY: usize = 2;
const READ_CAPACITY: usize = 64;

/// Faces of a race photo: so many photos fill a batch of the embedder. More would wait with all their pixels.
const FACES_PER_PHOTO: usize = 3;

/// Photos a transaction: commits dominate below, nothing is gained above.
const INDEX_BATCH: usize = 64;

/// What starts generations of these stages.
pub(crate) fn generation_factory(
    settings: PipelineSettings,
    parts: PipelineDependencies,
    shared: Arc<SharedState>,
) -> GenerationFactory {
    // The pool outlives generations; the budgets do not, for closing ends them.
    let pool = PixelPool::default();
    Box::new(move |kill| {
        Assembly { settings: &settings, dependencies: &parts, shared: &shared, pool: &pool }
            .start_generation(kill)
    })
}

struct Assembly<'a> {
    settings: &'a PipelineSettings,
    dependencies: &'a PipelineDependencies,
    shared: &'a Arc<SharedState>,
    pool: &'a PixelPool,
}

type Edge<T> = (Sender<InFlight<T>>, Receiver<InFlight<T>>);

fn edge<T>(capacity: usize) -> Edge<T> {
    bounded(capacity)
}

fn next<T>(sender: Sender<InFlight<T>>) -> Outlet<T> {
    Outlet::Next(sender)
}

impl Assembly<'_> {
    /// Starts every stage, last stage first; the feed waits until all are ready.
    fn start_generation(&self, kill: KillSwitch) -> Result<PendingGeneration, Outage> {
        let calls = StoreClient { runtime: self.dependencies.runtime.clone(), kill_switch: kill.clone() };
        let (files, pixels) =
            (Budget::new(self.settings.file_budget_bytes), Budget::new(self.settings.pixel_budget_bytes));
        let mut crew = StageThreads::new(calls.clone(), Arc::clone(&self.shared.stats));
        let (leased, bell) = (edge(LEASED_CAPACITY), bounded(1));
        let drain = Arc::new(AtomicBool::new(false));
        let feed = Feed {
            leases: Arc::clone(&self.shared.leases),
            store: calls.clone(),
            outlet: leased.0,
            wakeup: bell.1,
            is_draining: Arc::clone(&drain),
            lease_ttl: self.settings.lease_ttl,
            stats: self.shared.stats.stage("feed"),
        };
        let hired = self.spawn_network_stages(&mut crew, &calls).and_then(|sized| {
            self.spawn_image_stages(
                &mut crew,
                &calls,
                PipelineEnds { leased: leased.1, sized, budgets: [&files, &pixels] },
            )
        });
        let generation = Generation {
            threads: crew,
            kill_switch: kill,
            is_draining: drain,
            wakeup: bell.0,
            budgets: [files, pixels],
        };
        if let Err(outage) = hired {
            // It holds the first edge open: no stage would see that nothing comes any more.
            drop(feed);
            generation.terminate(Vec::new());
            return Err(outage);
        }
        let open = Box::new(move |generation: &mut Generation| {
            generation.threads.spawn_thread("feed", 0, move || feed.run())
        });
        Ok(PendingGeneration { generation, start_feed: open })
    }

    /// `index`, `read`, `embed`, `detect`. Answers where sized photos go in.
    fn spawn_network_stages(
        &self,
        crew: &mut StageThreads,
        calls: &StoreClient,
    ) -> Result<Sender<InFlight<crate::stages::photo::SizedPhoto>>, Outage> {
        let (settings, batch) = (self.settings, self.dependencies.models.batch_sizes());
        let embed_batch = batch.embed.div_ceil(FACES_PER_PHOTO);
        let (read, embedded) = (edge(READ_CAPACITY), edge(PIXELS_CAPACITY.max(2 * batch.read)));
        let (detected, sized) =
            (edge(PIXELS_CAPACITY.max(embed_batch)), edge(PIXELS_CAPACITY.max(2 * batch.detect)));
        let post = stage_spec("index", 1, INDEX_BATCH, self.index_factory(calls));
        crew.spawn_stage(post, Inlet(read.1), Outlet::Terminal(Index::to_outcome))?;
        let post = self::stage_spec("read", settings.read_threads, batch.read, self.read_factory());
        crew.spawn_stage(post, Inlet(embedded.1), next(read.0))?;
        let post = self::stage_spec("embed", settings.embed_threads, embed_batch, self.embed_factory());
        crew.spawn_stage(post, Inlet(detected.1), next(embedded.0))?;
        let post = self::stage_spec("detect", settings.detect_threads, batch.detect, self.detect_factory());
        crew.spawn_stage(post, Inlet(sized.1), next(detected.0))?;
        Ok(sized.0)
    }

    /// `resize`, `decode`, `fetch`.
    fn spawn_image_stages(
        &self,
        crew: &mut StageThreads,
        calls: &StoreClient,
        ends: PipelineEnds<'_>,
    ) -> Result<(), Outage> {
        let settings = self.settings;
        let (decoded, fetched) = (edge(DECODED_CAPACITY), edge(FETCHED_CAPACITY));
        let [files, pixels] = ends.budgets;
        let post = stage_spec("resize", settings.resize_threads, 1, self.resize_factory());
        crew.spawn_stage(post, Inlet(decoded.1), next(ends.sized))?;
        let post = self::stage_spec("decode", settings.decode_threads, 1, self.decode_factory(pixels));
        crew.spawn_stage(post, Inlet(fetched.1), next(decoded.0))?;
        let post = self::stage_spec("fetch", settings.fetch_threads, 1, self.fetch_factory(calls, files));
        crew.spawn_stage(post, Inlet(ends.leased), next(fetched.0))
    }

    fn fetch_factory(&self, calls: &StoreClient, files: &Budget) -> StageFactory<Fetch> {
        let (blobs, calls, files) = (Arc::clone(&self.dependencies.blobs), calls.clone(), files.clone());
        let limits = self.settings.limits;
        Arc::new(move || {
            Ok(Fetch {
                blobs: Arc::clone(&blobs),
                store_client: calls.clone(),
                file_budget: files.clone(),
                limits,
            })
        })
    }

    fn decode_factory(&self, pixels: &Budget) -> StageFactory<Decode> {
        let (limits, pool, pixels) = (self.settings.limits, self.pool.clone(), pixels.clone());
        Arc::new(move || {
            let decoder =
                Decoder::new(limits, pool.clone()).map_err(|error| jpeg_outage("decode", &error))?;
            Ok(Decode { decoder, pixel_budget: pixels.clone() })
        })
    }

    fn resize_factory(&self) -> StageFactory<Resize> {
        let pool = self.pool.clone();
        Arc::new(move || Resize::new(pool.clone()).map_err(|error| jpeg_outage("resize", &error)))
    }

    fn detect_factory(&self) -> StageFactory<Detect> {
        let models = Arc::clone(&self.dependencies.models);
        Arc::new(move || Ok(Detect { detector: models.create_face_detector()?, resizer: Resizer::default() }))
    }

    fn embed_factory(&self) -> StageFactory<Embed> {
        let models = Arc::clone(&self.dependencies.models);
        Arc::new(move || Ok(Embed::new(models.create_face_embedder()?, models.batch_sizes().embed)))
    }

    fn read_factory(&self) -> StageFactory<Read> {
        let models = Arc::clone(&self.dependencies.models);
        Arc::new(move || {
            let (resizer, patterns) = (Resizer::default(), PatternCache::default());
            Ok(Read { reader: models.create_bib_reader()?, resizer, patterns })
        })
    }

    fn index_factory(&self, calls: &StoreClient) -> StageFactory<Index> {
        let (queue, blobs) = (Arc::clone(&self.dependencies.queue), Arc::clone(&self.dependencies.blobs));
        let calls = calls.clone();
        Arc::new(move || {
            Ok(Index { queue: Arc::clone(&queue), blobs: Arc::clone(&blobs), store_client: calls.clone() })
        })
    }
}

/// What the first stages are tied to.
struct PipelineEnds<'a> {
    leased: Receiver<InFlight<Arc<photofinish_store::traits::Lease>>>,
    sized: Sender<InFlight<crate::stages::photo::SizedPhoto>>,
    budgets: [&'a Budget; 2],
}

fn stage_spec<S: Stage>(
    stage: &'static str,
    threads: usize,
    batch_size: usize,
    build: StageFactory<S>,
) -> StageSpec<S> {
    StageSpec { stage, threads, batch_size, factory: build }
}

fn jpeg_outage(stage: &'static str, error: &turbojpeg::Error) -> Outage {
    Outage::new(Component::Stage(stage), format!("libjpeg-turbo: {error}"))
}
