//! A pipeline of three stages that do nothing but fail as they are told, under the real feed, runner, generation and
//! supervisor: for tests of what becomes of photos whatever dies.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use photofinish_store::ids::PhotoId;
use photofinish_store::photo::PhotoSize;
use photofinish_store::traits::{Finished, Lease, Queue};

use crate::book::{Book, Keeper};
use crate::budget::{Budget, Held};
use crate::fault::{Outage, Part};
use crate::feed::Feed;
use crate::generation::{Crew, Generation, Post};
use crate::meters::Meters;
use crate::runner::{Inlet, Outlet};
use crate::spans::Outcome;
use crate::stage::{Answers, Stage};
use crate::store_call::{Kill, StoreCalls};
use crate::supervisor::{
    LOOK, Shared, Starter, Starting, Status, StopReport, Supervisor, Waits, stop_channel,
};
use crate::testing::memory_queue::MemoryQueue;
use crate::ticket::InFlight;

/// What happens in a run of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The run panics.
    Panic,
    /// The run panics, and so does building the stage anew.
    Die,
    /// The run answers an outage.
    Outage,
    /// The run takes longer than several looks of the supervisor, then answers an outage: what a storage that hangs does.
    Hang,
    /// The run answers too few results.
    Lie,
    /// The run waits at the gate, and whatever else ends does not end it: a thread that hangs in native code.
    Park,
}

/// What fails when.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// By stage and number of its run, over all threads and generations.
    pub(crate) at: HashMap<(usize, usize), Fault>,
    /// Photos that panic in the second stage each time.
    pub(crate) cursed: HashSet<PhotoId>,
    /// Photos for which the second stage has no room, though it is sound.
    pub(crate) too_large: HashSet<PhotoId>,
    pub(crate) runs: [AtomicUsize; 3],
    pub(crate) dying: [AtomicBool; 3],
    /// Generations that were started, with all their stages.
    pub(crate) generations: AtomicUsize,
    /// Sizes of the batches of the second stage.
    pub(crate) batches: Mutex<Vec<usize>>,
    /// Opens when its sender is dropped, also by a test that fails; always open where there is none.
    pub(crate) gate: Option<Receiver<()>>,
}

pub(crate) const NAMES: [&str; 4] = ["feed", "one", "two", "three"];

/// An item with a hold of a budget, as real ones have.
#[derive(Debug)]
struct Item {
    lease: Arc<Lease>,
    _held: Option<Held>,
}

struct Link {
    number: usize,
    faults: Arc<Faults>,
    budget: Budget,
    queue: Arc<MemoryQueue>,
    calls: StoreCalls,
}

impl Link {
    fn new(number: usize, faults: &Arc<Faults>, budget: &Budget, work: &Work) -> Self {
        assert!(!faults.dying[number].load(Ordering::Acquire), "told to die while being built");
        Self {
            number,
            faults: Arc::clone(faults),
            budget: budget.clone(),
            queue: Arc::clone(&work.queue),
            calls: work.calls.clone(),
        }
    }

    fn suffer(&self, batch: &[Arc<Lease>]) -> Result<(), Outage> {
        let run = self.faults.runs[self.number].fetch_add(1, Ordering::AcqRel);
        match self.faults.at.get(&(self.number, run)) {
            Some(Fault::Panic) => panic!("told to panic"),
            Some(Fault::Die) => {
                self.faults.dying[self.number].store(true, Ordering::Release);
                panic!("told to die")
            }
            Some(Fault::Outage) => return Err(Outage::because(Part::Models, "told to be out")),
            Some(Fault::Hang) => {
                std::thread::sleep(3 * LOOK);
                return Err(Outage::because(Part::Models, "told to be out after a while"));
            }
            Some(Fault::Park) => {
                // Nothing is ever sent: it ends with its sender.
                let _open = self.faults.gate.as_ref().map(Receiver::recv);
            }
            Some(Fault::Lie) | None => {}
        }
        if self.number == 1 && batch.iter().any(|lease| self.faults.too_large.contains(&lease.photo)) {
            return Err(Outage { is_suspicious: true, ..Outage::because(Part::Models, "no room") });
        }
        let is_cursed = |lease: &Arc<Lease>| self.faults.cursed.contains(&lease.photo);
        assert!(!(self.number == 1 && batch.iter().any(is_cursed)), "a cursed photo");
        Ok(())
    }

    fn lies(&self) -> bool {
        let run = self.faults.runs[self.number].load(Ordering::Acquire).wrapping_sub(1);
        self.faults.at.get(&(self.number, run)) == Some(&Fault::Lie)
    }
}

struct First(Link);

impl Stage for First {
    type In = Arc<Lease>;
    type Out = Item;

    fn run(&mut self, batch: &[Arc<Lease>]) -> Result<Answers<Item>, Outage> {
        self.0.suffer(batch)?;
        batch
            .iter()
            .map(|lease| {
                let held = self
                    .0
                    .budget
                    .hold(10)
                    .map_err(|closed| Outage::because(Part::Storage, closed.to_string()))?;
                Ok(Ok(Item { lease: Arc::clone(lease), _held: Some(held) }))
            })
            .collect()
    }
}

struct Second(Link);

impl Stage for Second {
    type In = Item;
    type Out = Item;

    fn run(&mut self, batch: &[Item]) -> Result<Answers<Item>, Outage> {
        self.0.faults.batches.lock().unwrap().push(batch.len());
        self.0.suffer(&batch.iter().map(|item| Arc::clone(&item.lease)).collect::<Vec<_>>())?;
        let honest = batch.len() - usize::from(self.0.lies());
        Ok(batch[..honest]
            .iter()
            .map(|item| Ok(Item { lease: Arc::clone(&item.lease), _held: None }))
            .collect())
    }
}

struct Third(Link);

impl Stage for Third {
    type In = Item;
    type Out = ();

    fn run(&mut self, batch: &[Item]) -> Result<Answers<()>, Outage> {
        self.0.suffer(&batch.iter().map(|item| Arc::clone(&item.lease)).collect::<Vec<_>>())?;
        let photos = batch.iter().map(|item| finished(&item.lease)).collect();
        self.0
            .calls
            .ask(Part::Database, self.0.queue.finish(photos))?
            .map_err(|error| Outage::of_store(Part::Database, error))?;
        Ok(batch.iter().map(|_| Ok(())).collect())
    }
}

fn finished(lease: &Lease) -> Finished {
    Finished {
        lease: lease.clone(),
        size: PhotoSize { width: 1, height: 1 },
        taken_at: None,
        camera: None,
        faces: Vec::new(),
        texts: Vec::new(),
    }
}

#[derive(Clone)]
struct Work {
    queue: Arc<MemoryQueue>,
    calls: StoreCalls,
}

/// The pipeline of failing stages.
pub(crate) struct Rig {
    pub(crate) shared: Arc<Shared>,
    stop: Sender<()>,
    supervisor: JoinHandle<StopReport>,
    /// The metrics of the supervisor's thread.
    page: PrometheusHandle,
    _runtime: tokio::runtime::Runtime,
}

/// Threads of each stage, and photos a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) threads: usize,
    pub(crate) batch_size: usize,
}

/// How long a rig waits for what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// How long leases hold.
    pub(crate) ttl: Duration,
    pub(crate) waits: Waits,
    /// After so many failures in a row.
    pub(crate) pause: fn(u32) -> Duration,
    /// After this photos that do not end hang.
    pub(crate) stalled: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            ttl: Duration::from_millis(90),
            waits: Waits::SERVICE,
            pause: |_| Duration::from_millis(1),
            stalled: Duration::from_secs(60),
        }
    }
}

impl Rig {
    pub(crate) fn start(queue: &Arc<MemoryQueue>, faults: &Arc<Faults>, shape: Shape) -> Self {
        Self::start_at(Pace::default(), queue, faults, shape)
    }

    pub(crate) fn start_at(pace: Pace, queue: &Arc<MemoryQueue>, faults: &Arc<Faults>, shape: Shape) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let shared = Arc::new(Shared {
            status: Mutex::new(Status::Starting),
            meters: Arc::new(Meters::new(&NAMES)),
            book: Arc::new(Book::new(Arc::clone(queue) as Arc<dyn Queue>)),
            bell: Mutex::default(),
        });
        let calls = StoreCalls { runtime: runtime.handle().clone(), kill: Kill::new() };
        let (stop, stopped) = stop_channel();
        let supervisor = Supervisor {
            shared: Arc::clone(&shared),
            stop: stopped,
            keeper: Keeper::start(Arc::clone(&shared.book), calls, pace.ttl).unwrap(),
            runtime: runtime.handle().clone(),
            grace: Duration::from_secs(10),
            pause: pace.pause,
            starter: starter(queue, faults, (shape, pace), (Arc::clone(&shared), runtime.handle().clone())),
        };
        let recorder = PrometheusBuilder::new().build_recorder();
        let page = recorder.handle();
        let work = move || metrics::with_local_recorder(&recorder, || supervisor.work_with(pace.waits));
        let supervisor = std::thread::Builder::new().name("supervisor".into()).spawn(work).unwrap();
        Self { shared, stop, supervisor, page, _runtime: runtime }
    }

    /// Whether the metrics of the supervisor's thread have this line.
    pub(crate) fn shows(&self, line: &str) -> bool {
        self.page.render().lines().any(|shown| shown == line)
    }

    pub(crate) fn stop(self) -> StopReport {
        self.stop.send(()).unwrap();
        self.supervisor.join().unwrap()
    }
}

fn starter(
    queue: &Arc<MemoryQueue>,
    faults: &Arc<Faults>,
    (shape, pace): (Shape, Pace),
    (shared, runtime): (Arc<Shared>, tokio::runtime::Handle),
) -> Starter {
    let (queue, faults) = (Arc::clone(queue), Arc::clone(faults));
    Box::new(move |kill| {
        faults.generations.fetch_add(1, Ordering::AcqRel);
        faults.dying.iter().for_each(|dying| dying.store(false, Ordering::Release));
        let calls = StoreCalls { runtime: runtime.clone(), kill: kill.clone() };
        let work = Work { queue: Arc::clone(&queue), calls: calls.clone() };
        // Room for three items at once: stages wait for each other all the time.
        let budget = Budget::new(30);
        let (leased, one, two) = (bounded::<InFlight<Arc<Lease>>>(4), bounded(2), bounded(2));
        let mut crew = Crew::new(calls.clone(), Arc::clone(&shared.meters));
        let link = |number: usize| {
            let (faults, budget, work) = (Arc::clone(&faults), budget.clone(), work.clone());
            move || Link::new(number, &faults, &budget, &work)
        };
        let Shape { threads, batch_size } = shape;
        let third = link(2);
        let build: crate::runner::Builder<Third> = Arc::new(move || Ok(Third(third())));
        crew.hire(
            Post { stage: "three", threads: 1, batch_size: 8, build },
            Inlet(two.1),
            Outlet::Settled(|()| Outcome::Ready),
        )?;
        let second = link(1);
        let build: crate::runner::Builder<Second> = Arc::new(move || Ok(Second(second())));
        crew.hire(Post { stage: "two", threads, batch_size, build }, Inlet(one.1), Outlet::Next(two.0))?;
        let first = link(0);
        let build: crate::runner::Builder<First> = Arc::new(move || Ok(First(first())));
        crew.hire(
            Post { stage: "one", threads, batch_size: 1, build },
            Inlet(leased.1),
            Outlet::Next(one.0),
        )?;
        let bell = bounded(1);
        let drain = Arc::new(AtomicBool::new(false));
        let feed = Feed {
            book: Arc::clone(&shared.book),
            calls,
            outlet: leased.0,
            bell: bell.1,
            drain: Arc::clone(&drain),
            ttl: pace.ttl,
            meter: shared.meters.of("feed"),
        };
        let budgets = [budget.clone(), Budget::new(1)];
        Ok(Starting {
            generation: Generation { crew, kill, drain, bell: bell.0, budgets },
            open: Box::new(move |generation| {
                generation.crew.start("feed", 0, move || feed.work_with(pace.stalled))
            }),
        })
    })
}
