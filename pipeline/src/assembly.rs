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

use crate::budget::Budget;
use crate::decode::Decode;
use crate::decode::bounded::Decoder;
use crate::decode::pool::PixelPool;
use crate::detect::Detect;
use crate::embed::Embed;
use crate::fault::{Outage, Part};
use crate::feed::Feed;
use crate::fetch::Fetch;
use crate::generation::{Crew, Generation, Post};
use crate::index::Index;
use crate::read::{Patterns, Read};
use crate::resize::Resize;
use crate::runner::{Builder, Inlet, Outlet};
use crate::settings::{PipelineParts, PipelineSettings};
use crate::stage::Stage;
use crate::store_call::{Kill, StoreCalls};
use crate::supervisor::{Shared, Starter, Starting};
use crate::ticket::InFlight;

/// The stages in order.
pub(crate) const STAGES: [&str; 8] =
    ["feed", "fetch", "decode", "resize", "detect", "embed", "read", "index"];

const LEASED: usize = 32;
const FETCHED: usize = 8;
const DECODED: usize = 2;
const WITH_PIXELS: usize = 2;
const READ: usize = 64;

/// Faces of a race photo: so many photos fill a batch of the embedder. More would wait with all their pixels.
const FACES_A_PHOTO: usize = 3;

/// Photos a transaction: commits dominate below, nothing is gained above.
const INDEX_BATCH: usize = 64;

/// What starts generations of these stages.
pub(crate) fn starter(settings: PipelineSettings, parts: PipelineParts, shared: Arc<Shared>) -> Starter {
    // The pool outlives generations; the budgets do not, for closing ends them.
    let pool = PixelPool::default();
    Box::new(move |kill| {
        Assembly { settings: &settings, parts: &parts, shared: &shared, pool: &pool }.start(kill)
    })
}

struct Assembly<'a> {
    settings: &'a PipelineSettings,
    parts: &'a PipelineParts,
    shared: &'a Arc<Shared>,
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
    fn start(&self, kill: Kill) -> Result<Starting, Outage> {
        let calls = StoreCalls { runtime: self.parts.runtime.clone(), kill: kill.clone() };
        let (files, pixels) =
            (Budget::new(self.settings.file_budget_bytes), Budget::new(self.settings.pixel_budget_bytes));
        let mut crew = Crew::new(calls.clone(), Arc::clone(&self.shared.meters));
        let (leased, bell) = (edge(LEASED), bounded(1));
        let drain = Arc::new(AtomicBool::new(false));
        let feed = Feed {
            book: Arc::clone(&self.shared.book),
            calls: calls.clone(),
            outlet: leased.0,
            bell: bell.1,
            drain: Arc::clone(&drain),
            ttl: self.settings.lease_ttl,
            meter: self.shared.meters.of("feed"),
        };
        let hired = self.hire_with_pixels(&mut crew, &calls).and_then(|sized| {
            self.hire_before_networks(
                &mut crew,
                &calls,
                Ends { leased: leased.1, sized, budgets: [&files, &pixels] },
            )
        });
        let generation = Generation { crew, kill, drain, bell: bell.0, budgets: [files, pixels] };
        if let Err(outage) = hired {
            // It holds the first edge open: no stage would see that nothing comes any more.
            drop(feed);
            generation.end(Vec::new());
            return Err(outage);
        }
        let open = Box::new(move |generation: &mut Generation| {
            generation.crew.start("feed", 0, move || feed.work())
        });
        Ok(Starting { generation, open })
    }

    /// `index`, `read`, `embed`, `detect`. Answers where sized photos go in.
    fn hire_with_pixels(
        &self,
        crew: &mut Crew,
        calls: &StoreCalls,
    ) -> Result<Sender<InFlight<crate::photo::SizedPhoto>>, Outage> {
        let (settings, batch) = (self.settings, self.parts.models.batch_sizes());
        let embed_batch = batch.embed.div_ceil(FACES_A_PHOTO);
        let (read, embedded) = (edge(READ), edge(WITH_PIXELS.max(2 * batch.read)));
        let (detected, sized) = (edge(WITH_PIXELS.max(embed_batch)), edge(WITH_PIXELS.max(2 * batch.detect)));
        let post = post("index", 1, INDEX_BATCH, self.build_index(calls));
        crew.hire(post, Inlet(read.1), Outlet::Settled(Index::outcome))?;
        let post = self::post("read", settings.read_threads, batch.read, self.build_read());
        crew.hire(post, Inlet(embedded.1), next(read.0))?;
        let post = self::post("embed", settings.embed_threads, embed_batch, self.build_embed());
        crew.hire(post, Inlet(detected.1), next(embedded.0))?;
        let post = self::post("detect", settings.detect_threads, batch.detect, self.build_detect());
        crew.hire(post, Inlet(sized.1), next(detected.0))?;
        Ok(sized.0)
    }

    /// `resize`, `decode`, `fetch`.
    fn hire_before_networks(
        &self,
        crew: &mut Crew,
        calls: &StoreCalls,
        ends: Ends<'_>,
    ) -> Result<(), Outage> {
        let settings = self.settings;
        let (decoded, fetched) = (edge(DECODED), edge(FETCHED));
        let [files, pixels] = ends.budgets;
        let post = post("resize", settings.resize_threads, 1, self.build_resize());
        crew.hire(post, Inlet(decoded.1), next(ends.sized))?;
        let post = self::post("decode", settings.decode_threads, 1, self.build_decode(pixels));
        crew.hire(post, Inlet(fetched.1), next(decoded.0))?;
        let post = self::post("fetch", settings.fetch_threads, 1, self.build_fetch(calls, files));
        crew.hire(post, Inlet(ends.leased), next(fetched.0))
    }

    fn build_fetch(&self, calls: &StoreCalls, files: &Budget) -> Builder<Fetch> {
        let (blobs, calls, files) = (Arc::clone(&self.parts.blobs), calls.clone(), files.clone());
        let limits = self.settings.limits;
        Arc::new(move || {
            Ok(Fetch { blobs: Arc::clone(&blobs), calls: calls.clone(), files: files.clone(), limits })
        })
    }

    fn build_decode(&self, pixels: &Budget) -> Builder<Decode> {
        let (limits, pool, pixels) = (self.settings.limits, self.pool.clone(), pixels.clone());
        Arc::new(move || {
            let decoder = Decoder::new(limits, pool.clone()).map_err(|error| no_jpeg("decode", &error))?;
            Ok(Decode { decoder, pixels: pixels.clone() })
        })
    }

    fn build_resize(&self) -> Builder<Resize> {
        let pool = self.pool.clone();
        Arc::new(move || Resize::new(pool.clone()).map_err(|error| no_jpeg("resize", &error)))
    }

    fn build_detect(&self) -> Builder<Detect> {
        let models = Arc::clone(&self.parts.models);
        Arc::new(move || Ok(Detect { detector: models.face_detector()?, resizer: Resizer::default() }))
    }

    fn build_embed(&self) -> Builder<Embed> {
        let models = Arc::clone(&self.parts.models);
        Arc::new(move || Ok(Embed::new(models.face_embedder()?, models.batch_sizes().embed)))
    }

    fn build_read(&self) -> Builder<Read> {
        let models = Arc::clone(&self.parts.models);
        Arc::new(move || {
            let (resizer, patterns) = (Resizer::default(), Patterns::default());
            Ok(Read { reader: models.bib_reader()?, resizer, patterns })
        })
    }

    fn build_index(&self, calls: &StoreCalls) -> Builder<Index> {
        let (queue, blobs) = (Arc::clone(&self.parts.queue), Arc::clone(&self.parts.blobs));
        let calls = calls.clone();
        Arc::new(move || {
            Ok(Index { queue: Arc::clone(&queue), blobs: Arc::clone(&blobs), calls: calls.clone() })
        })
    }
}

/// What the first stages are tied to.
struct Ends<'a> {
    leased: Receiver<InFlight<Arc<photofinish_store::traits::Lease>>>,
    sized: Sender<InFlight<crate::photo::SizedPhoto>>,
    budgets: [&'a Budget; 2],
}

fn post<S: Stage>(stage: &'static str, threads: usize, batch_size: usize, build: Builder<S>) -> Post<S> {
    Post { stage, threads, batch_size, build }
}

fn no_jpeg(stage: &'static str, error: &turbojpeg::Error) -> Outage {
    Outage::because(Part::Stage(stage), format!("libjpeg-turbo: {error}"))
}
