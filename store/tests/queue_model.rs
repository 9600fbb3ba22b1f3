//! Random histories of the queue against a model of it: whatever happens in whatever order, every confirmed photo
//! ends exactly once, and only the holder of its running lease says how.

#![allow(clippy::unwrap_used, reason = "clippy takes only the test functions themselves for tests")]

mod embedded;
mod server;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use embedded::{Home, LIMIT};
use photofinish_store::Store;
use photofinish_store::ids::PhotoId;
use photofinish_store::photo::{FailureReason, PhotoSize, PhotoState};
use photofinish_store::suite::{Event, face, text};
use photofinish_store::traits::{Finish, Finished, Lease, Named, PhotoRef};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use server::Server;
use tokio::runtime::Runtime;

const LONG: Duration = Duration::from_secs(3600);

/// How often, and after how long, a lease that passed over a row looks again.
const PATIENCE: usize = 200;
const MOMENT: Duration = Duration::from_millis(10);

/// What may happen. Numbers choose among what there is at that moment.
#[derive(Clone, Debug)]
enum Step {
    Expect,
    Confirm(usize),
    Lease(usize),
    LeaseSuspect,
    /// A message names the photo, whatever became of it.
    LeaseNamed(usize),
    /// Everything that waits is published.
    Publish,
    /// All messages are lost.
    Republish,
    /// The worker dies: its lease lapses.
    Die(usize),
    GiveBack(usize),
    Finish(Vec<usize>),
    Fail(usize),
    /// A worker that lost its lease comes back and writes.
    Late(usize),
    Delete(usize),
    Retry(usize),
    Reprocess,
}

fn step() -> impl Strategy<Value = Step> {
    let any = 0..64_usize;
    prop_oneof![
        4 => Just(Step::Expect),
        5 => any.clone().prop_map(Step::Confirm),
        5 => (1..4_usize).prop_map(Step::Lease),
        4 => Just(Step::LeaseSuspect),
        4 => any.clone().prop_map(Step::LeaseNamed),
        2 => Just(Step::Publish),
        1 => Just(Step::Republish),
        4 => any.clone().prop_map(Step::Die),
        2 => any.clone().prop_map(Step::GiveBack),
        4 => prop::collection::vec(any.clone(), 1..4).prop_map(Step::Finish),
        2 => any.clone().prop_map(Step::Fail),
        3 => any.clone().prop_map(Step::Late),
        1 => any.clone().prop_map(Step::Delete),
        2 => any.prop_map(Step::Retry),
        1 => Just(Step::Reprocess),
    ]
}

/// A photo as the model has it.
#[derive(Clone, Debug)]
struct Expected {
    state: PhotoState,
    attempts: u32,
    lease: Option<Lease>,
    lapsed: bool,
    /// Whether a message names this turn of it.
    published: bool,
    /// The text of the reading that stands.
    reading: Option<String>,
}

impl Expected {
    fn is_fresh(&self) -> bool {
        self.state == PhotoState::Queued && self.attempts == 0
    }

    fn is_suspect(&self) -> bool {
        (self.state == PhotoState::Queued && self.attempts > 0)
            || (self.state == PhotoState::Processing && self.lapsed)
    }

    fn settle(&mut self, state: PhotoState) {
        let (published, reading) = (self.published && state != PhotoState::Queued, self.reading.take());
        *self = Self { state, attempts: 0, lease: None, lapsed: false, published, reading };
    }
}

struct World {
    event: Event,
    photos: BTreeMap<PhotoId, Expected>,
    /// Leases that were lost, given back or used.
    past: Vec<Lease>,
    readings: usize,
}

impl World {
    async fn new(store: &Store) -> Self {
        Self { event: Event::make(store).await, photos: BTreeMap::new(), past: Vec::new(), readings: 0 }
    }

    fn store(&self) -> &Store {
        &self.event.store
    }

    fn pick(&self, choice: usize, wanted: impl Fn(&Expected) -> bool) -> Option<PhotoId> {
        let fitting: Vec<PhotoId> =
            self.photos.iter().filter(|(_, photo)| wanted(photo)).map(|(id, _)| *id).collect();
        (!fitting.is_empty()).then(|| fitting[choice % fitting.len()])
    }

    fn photo(&mut self, id: PhotoId) -> &mut Expected {
        self.photos.get_mut(&id).unwrap()
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Expect => self.expect().await,
            Step::Confirm(choice) => self.confirm(choice).await,
            Step::Lease(limit) => self.lease(limit).await,
            Step::LeaseSuspect => self.lease_suspect().await,
            Step::LeaseNamed(choice) => self.lease_named(choice).await,
            Step::Publish => self.publish().await,
            Step::Republish => self.republish().await,
            Step::Die(choice) => self.die(choice).await,
            Step::GiveBack(choice) => self.give_back(choice).await,
            Step::Finish(choices) => self.finish(&choices).await,
            Step::Fail(choice) => self.fail(choice).await,
            Step::Late(choice) => self.late(choice).await,
            Step::Delete(choice) => self.delete(choice).await,
            Step::Retry(choice) => self.retry(choice).await,
            Step::Reprocess => self.reprocess().await,
        }
        self.compare().await;
    }

    async fn expect(&mut self) {
        let id = self.event.expected(1).await[0];
        let state = PhotoState::AwaitingUpload;
        let expected =
            Expected { state, attempts: 0, lease: None, lapsed: false, published: false, reading: None };
        self.photos.insert(id, expected);
    }

    async fn confirm(&mut self, choice: usize) {
        let Some(id) = self.pick(choice, |_| true) else { return };
        assert_eq!(self.store().queue.confirm(self.event.album, &[id]).await.unwrap(), [id]);
        let photo = self.photo(id);
        if photo.state == PhotoState::AwaitingUpload {
            photo.state = PhotoState::Queued;
        }
    }

    async fn lease(&mut self, limit: usize) {
        let fresh = self.photos.values().filter(|photo| photo.is_fresh()).count();
        let wanted = fresh.min(limit);
        let mut leases = self.event.leased(limit, LONG).await;
        // Leasing passes over a row that a call before holds a moment longer than its answer.
        for _ in 0..PATIENCE {
            if leases.len() >= wanted {
                break;
            }
            tokio::time::sleep(MOMENT).await;
            leases.extend(self.event.leased(wanted - leases.len(), LONG).await);
        }
        assert_eq!(leases.len(), wanted);
        for lease in leases {
            assert!(self.photo(lease.photo).is_fresh());
            self.hold(lease);
        }
    }

    fn hold(&mut self, lease: Lease) {
        let photo = self.photo(lease.photo);
        photo.attempts += 1;
        photo.state = PhotoState::Processing;
        photo.lapsed = false;
        assert_eq!(lease.attempt, photo.attempts);
        if let Some(lost) = photo.lease.replace(lease) {
            self.past.push(lost);
        }
    }

    async fn lease_suspect(&mut self) {
        let mut leased = self.event.leased_suspect(LONG).await;
        for _ in 0..PATIENCE {
            if leased.is_some()
                || !self.photos.values().any(|photo| photo.is_suspect() && photo.attempts < LIMIT)
            {
                break;
            }
            tokio::time::sleep(MOMENT).await;
            leased = self.event.leased_suspect(LONG).await;
        }
        let taken = leased.as_ref().map(|lease| lease.photo);
        // Those at the limit fail on the way to the first that is not; without one all of them do.
        let suspects: Vec<PhotoId> =
            self.photos.iter().filter(|(_, photo)| photo.is_suspect()).map(|(id, _)| *id).collect();
        assert!(taken.is_none_or(|taken| suspects.contains(&taken)));
        for id in suspects {
            let real = self.store().photos.get(self.event.album, id).await.unwrap();
            let attempts = self.photo(id).attempts;
            if real.state == PhotoState::Failed {
                assert!(attempts >= LIMIT);
                assert_eq!(real.failure, Some(FailureReason::ProcessingCrashed));
                let lost = self.photo(id).lease.take();
                self.past.extend(lost);
                self.photo(id).settle(PhotoState::Failed);
                self.photo(id).reading = None;
            } else if taken.is_none() {
                panic!("a suspect with {attempts} attempts was not leased");
            }
        }
        if let Some(lease) = leased {
            assert!(self.photo(lease.photo).attempts < LIMIT);
            self.hold(lease);
        }
    }

    async fn lease_named(&mut self, choice: usize) {
        let Some(id) = self.pick(choice, |_| true) else { return };
        let name = PhotoRef { album: self.event.album, photo: id };
        let answer = self.store().work_rows.lease_named(&[name], LONG).await.unwrap().pop().unwrap();
        let photo = self.photo(id);
        let waits = photo.is_fresh() || photo.is_suspect();
        match answer {
            Named::Leased(lease) => {
                assert!(waits && photo.attempts < LIMIT);
                self.hold(lease);
            }
            Named::Held => assert!(photo.lease.is_some() && !photo.lapsed),
            Named::Over if waits => {
                assert!(photo.attempts >= LIMIT);
                let lost = photo.lease.take();
                photo.settle(PhotoState::Failed);
                photo.reading = None;
                self.past.extend(lost);
            }
            Named::Over => assert_eq!(photo.lease.as_ref().map(|lease| lease.id), None),
        }
    }

    async fn publish(&mut self) {
        let waiting = self.store().work_rows.unpublished(1000).await.unwrap();
        self.store().work_rows.published(&waiting).await.unwrap();
        for unpublished in waiting {
            self.photo(unpublished.photo.photo).published = true;
        }
    }

    async fn republish(&mut self) {
        let mut found = 0;
        for photo in self.photos.values_mut().filter(|photo| photo.published) {
            if photo.state == PhotoState::Queued || (photo.lease.is_some() && photo.lapsed) {
                self.past.extend(photo.lease.take());
                photo.state = PhotoState::Queued;
                photo.lapsed = false;
                photo.published = false;
                found += 1;
            }
        }
        assert_eq!(self.store().work_rows.republish(i64::MAX).await.unwrap(), found);
    }

    async fn die(&mut self, choice: usize) {
        let Some(id) = self.pick(choice, |photo| photo.lease.is_some() && !photo.lapsed) else { return };
        let lease = self.photo(id).lease.as_ref().unwrap().id;
        assert_eq!(self.store().queue.renew(&[lease], Duration::ZERO).await.unwrap(), [lease]);
        self.photo(id).lapsed = true;
    }

    async fn give_back(&mut self, choice: usize) {
        let Some(id) = self.pick(choice, |photo| photo.lease.is_some()) else { return };
        let lease = self.photo(id).lease.take().unwrap();
        self.store().queue.give_back(&[lease.id]).await.unwrap();
        self.past.push(lease);
        let photo = self.photo(id);
        photo.state = PhotoState::Queued;
        photo.attempts -= 1;
        photo.lapsed = false;
        photo.published = false;
    }

    /// Some running leases and perhaps a past one in one batch.
    async fn finish(&mut self, choices: &[usize]) {
        let mut batch: HashMap<PhotoId, Finished> = HashMap::new();
        for choice in choices {
            if let Some(id) = self.pick(*choice, |photo| photo.lease.is_some()) {
                let lease = self.photo(id).lease.clone().unwrap();
                let finished = self.reading_under(lease);
                batch.insert(id, finished);
            }
        }
        let batch: Vec<Finished> = batch.into_values().collect();
        let answers = self.store().queue.finish(batch.clone()).await.unwrap();
        assert_eq!(answers, vec![Finish::Done; batch.len()]);
        for finished in batch {
            let photo = self.photo(finished.lease.photo);
            photo.reading = Some(finished.texts[0].text.clone());
            photo.settle(PhotoState::Ready);
            self.past.push(finished.lease);
        }
    }

    fn reading_under(&mut self, lease: Lease) -> Finished {
        self.readings += 1;
        Finished {
            lease,
            size: PhotoSize { width: 6000, height: 4000 },
            taken_at: None,
            camera: None,
            faces: vec![face([1.0, 0.0, 0.0, 0.0])],
            texts: vec![text(&format!("READING{}", self.readings), 0.99)],
        }
    }

    async fn fail(&mut self, choice: usize) {
        let Some(id) = self.pick(choice, |photo| photo.lease.is_some()) else { return };
        let lease = self.photo(id).lease.take().unwrap();
        let answer = self.store().queue.fail(&lease, FailureReason::CorruptImage, "by the model").await;
        assert_eq!(answer.unwrap(), Finish::Done);
        self.past.push(lease);
        self.photo(id).settle(PhotoState::Failed);
        self.photo(id).reading = None;
    }

    async fn late(&mut self, choice: usize) {
        if self.past.is_empty() {
            return;
        }
        let lease = self.past[choice % self.past.len()].clone();
        let is_there = self.photos.contains_key(&lease.photo);
        let expected = if is_there { Finish::Superseded } else { Finish::Gone };
        let finished = self.reading_under(lease.clone());
        assert_eq!(self.store().queue.finish(vec![finished]).await.unwrap(), [expected]);
        let answer = self.store().queue.fail(&lease, FailureReason::TooLarge, "late").await.unwrap();
        assert_eq!(answer, expected);
        self.store().queue.give_back(&[lease.id]).await.unwrap();
        assert_eq!(self.store().queue.renew(&[lease.id], LONG).await.unwrap(), []);
    }

    async fn delete(&mut self, choice: usize) {
        let Some(id) = self.pick(choice, |_| true) else { return };
        self.store().photos.delete(self.event.album, id).await.unwrap();
        let gone = self.photos.remove(&id).unwrap();
        self.past.extend(gone.lease);
    }

    async fn retry(&mut self, choice: usize) {
        let Some(id) = self.pick(choice, |_| true) else { return };
        let retried = self.store().queue.retry(self.event.album, id).await;
        let photo = self.photo(id);
        assert_eq!(retried.is_ok(), photo.state == PhotoState::Failed);
        if retried.is_ok() {
            photo.settle(PhotoState::Queued);
        }
    }

    async fn reprocess(&mut self) {
        let mut queued = 0;
        for photo in self.photos.values_mut() {
            if matches!(photo.state, PhotoState::Ready | PhotoState::Failed) {
                photo.settle(PhotoState::Queued);
                queued += 1;
            }
        }
        assert_eq!(self.store().queue.reprocess(self.event.album).await.unwrap(), queued);
    }

    async fn compare(&self) {
        let counts = self.store().photos.counts(self.event.album).await.unwrap();
        let real = [counts.awaiting_upload, counts.queued, counts.processing, counts.ready, counts.failed];
        let of = |state| self.photos.values().filter(|photo| photo.state == state).count() as u64;
        assert_eq!(real, PhotoState::ALL.map(of));
        let waiting = self.photos.values().filter(|photo| photo.is_fresh() || photo.is_suspect()).count();
        assert_eq!(self.store().queue.depth().await.unwrap(), waiting as u64);
        let unpublished = self.store().work_rows.unpublished(1000).await.unwrap();
        let real: BTreeSet<PhotoId> = unpublished.iter().map(|waiting| waiting.photo.photo).collect();
        let queued = self.photos.iter().filter(|(_, photo)| photo.state == PhotoState::Queued);
        let expected = queued.filter(|(_, photo)| !photo.published).map(|(id, _)| *id);
        assert_eq!(real, expected.collect());
    }

    /// Works everything off, then looks at every photo.
    async fn end(mut self) {
        loop {
            self.lease(3).await;
            self.lease_suspect().await;
            for id in self.photos.keys().copied().collect::<Vec<_>>() {
                if self.photos[&id].lease.is_some() {
                    let lease = self.photos[&id].lease.clone().unwrap();
                    let finished = self.reading_under(lease);
                    let reading = finished.texts[0].text.clone();
                    assert_eq!(self.store().queue.finish(vec![finished]).await.unwrap(), [Finish::Done]);
                    self.photo(id).reading = Some(reading);
                    self.photo(id).settle(PhotoState::Ready);
                }
            }
            if self.store().queue.depth().await.unwrap() == 0 {
                break;
            }
        }
        self.compare().await;
        let probe = face([1.0, 0.0, 0.0, 0.0]).embedding.unwrap();
        let hits = self.store().faces.nearest(self.event.album, &probe, 1000, 0.9).await.unwrap();
        let mut found: Vec<PhotoId> = hits.iter().map(|hit| hit.photo).collect();
        found.sort();
        let with_faces = self.photos.iter().filter(|(_, photo)| photo.reading.is_some());
        assert_eq!(found, with_faces.map(|(id, _)| *id).collect::<Vec<_>>());
        for (id, photo) in &self.photos {
            let ends = [PhotoState::AwaitingUpload, PhotoState::Ready, PhotoState::Failed];
            assert!(ends.contains(&photo.state), "{photo:?}");
            let (faces, texts) = self.store().photos.seen(self.event.album, *id).await.unwrap();
            let texts: Vec<String> = texts.into_iter().map(|seen| seen.text).collect();
            assert_eq!(texts, photo.reading.iter().cloned().collect::<Vec<_>>());
            assert_eq!(faces.len(), texts.len());
        }
        self.event.end().await;
    }
}

#[test]
fn every_confirmed_photo_ends_exactly_once_whatever_happens_on_sqlite() {
    run_histories(&runtime(), &Home::new());
}

#[test]
fn every_confirmed_photo_ends_exactly_once_whatever_happens_on_postgres() {
    let Some(server) = Server::get() else { return };
    let runtime = runtime();
    let home = Home::with_rows(runtime.block_on(server.database()));
    run_histories(&runtime, &home);
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

fn run_histories(runtime: &Runtime, home: &Home) {
    let store = runtime.block_on(home.open());
    let config = Config { cases: 100, failure_persistence: None, ..Config::default() };
    let histories = prop::collection::vec(step(), 1..80);
    TestRunner::new(config)
        .run(&histories, |history| {
            runtime.block_on(async {
                let mut world = World::new(&store).await;
                for step in history {
                    world.take(step).await;
                }
                world.end().await;
            });
            Ok(())
        })
        .unwrap();
}
