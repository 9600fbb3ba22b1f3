//! Draws watermarks on the previews of photos that were processed without them, or with earlier ones, in one process at a
//! time.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use photofinish_pipeline::marking::{PreviewMarker, WatermarkPicture};
use photofinish_store::model::cost::{Spent, thread_cpu_time};
use photofinish_store::model::ids::{AlbumId, PhotoId, ProcessId};
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::model::process::{Task, TaskLease};
use photofinish_store::model::watermark::{AlbumToMark, MarkedPhoto};
use photofinish_store::{Store, StoreError, StoreErrorKind};
use tokio::time::{Instant, sleep};

/// How often it looks for something to mark.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// How long a process has the task after it last took it, which it does before each batch.
const LEASE_TTL: Duration = Duration::from_secs(60);
/// Objects that are read or written at once.
const CONCURRENT_OBJECTS: usize = 8;
/// A preview is a JPEG file of at most 8192 pixels a side.
const MAX_PREVIEW_BYTES: u64 = 64 << 20;
const MIN_PAUSE: Duration = Duration::from_millis(20);
/// How long after a failure an album is tried again, also while others are being marked.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// A process that marks, and what it leaves to its other work.
#[derive(Clone, Copy)]
pub struct Marker {
    holder: ProcessId,
    /// Photos of a batch, all of whose pictures are in memory.
    batch: u32,
    /// After a batch it pauses this many times as long as the batch took.
    pause_factor: u32,
    /// Whether it leaves the task to processes that read photos, as long as there are any.
    yields_to_workers: bool,
    retry_interval: Duration,
}

impl Marker {
    /// One that reads photos: those that wait come first, and half of a core is left to them.
    pub fn beside_photos(holder: ProcessId) -> Self {
        let retry_interval = RETRY_INTERVAL;
        Self { holder, batch: 32, pause_factor: 1, yields_to_workers: false, retry_interval }
    }

    /// One that answers requests alone, with memory and cores for no more than these. It marks where no worker runs, as where
    /// they are started when photos wait, in a quarter of one core.
    pub fn beside_requests(holder: ProcessId) -> Self {
        let retry_interval = RETRY_INTERVAL;
        Self { holder, batch: 8, pause_factor: 3, yields_to_workers: true, retry_interval }
    }

    /// Takes the task for a batch; returns whether it has it. One that yields gives it back, so that a worker has it at once.
    async fn take(self, store: &Store) -> Result<bool, StoreError> {
        if self.yields_to_workers && has_workers(store).await? {
            store.tasks.release(self.lease()).await?;
            return Ok(false);
        }
        Ok(store.tasks.take(Task::Marking, self.holder, LEASE_TTL).await?.is_some())
    }

    fn lease(self) -> TaskLease {
        TaskLease { task: Task::Marking, holder: self.holder }
    }
}

/// Whether a process reads photos now.
async fn has_workers(store: &Store) -> Result<bool, StoreError> {
    Ok(store.processes.list().await?.iter().any(|process| process.report.pipeline.is_some()))
}

/// Marks what is to be marked, until it is dropped.
pub async fn mark_forever(store: &Store, marker: Marker) {
    let mut is_failing = false;
    let mut failed = HashMap::new();
    loop {
        sleep(POLL_INTERVAL).await;
        let marked = mark_due(store, marker, &mut failed).await;
        match &marked {
            Ok(0) => {}
            Ok(photos) => tracing::info!(photos, "drew watermarks"),
            // Another process has the task.
            Err(error) if error.kind == StoreErrorKind::Conflict => {}
            Err(error) if !is_failing => {
                tracing::warn!(%error, "failed to draw watermarks, retrying every 2 s");
            }
            Err(_) => {}
        }
        is_failing = marked.is_err();
    }
}

/// Gives the task back, so that another process goes on at once.
pub async fn release(store: &Store, marker: Marker) {
    if let Err(error) = store.tasks.release(marker.lease()).await {
        tracing::warn!(%error, "failed to release the drawing of watermarks");
    }
}

/// Marks all that is due if this process has or gets the task; returns how many photos. Each organization has a batch in its
/// turn, so that those with many albums keep no other waiting. An album that fails does not keep the others from being marked:
/// `failed` says when each last did.
async fn mark_due(
    store: &Store,
    marker: Marker,
    failed: &mut HashMap<AlbumId, Instant>,
) -> Result<u64, StoreError> {
    let albums = store.watermarks.list_albums_to_mark().await?;
    failed.retain(|tried, _| albums.iter().any(|album| album.album == *tried));
    let mut marking = Marking { photos: 0, positions: HashMap::new(), failed, opened: None };
    let nothing_is_due = marking.pick_round(&albums, marker).is_empty();
    if nothing_is_due || marker.yields_to_workers && has_workers(store).await? {
        return Ok(0);
    }
    let has_task = marking.mark_all(store, marker, albums).await;
    if !matches!(has_task, Ok(false)) {
        // Receipts of erasures wait for who may write marked pictures.
        let released = store.tasks.release(marker.lease()).await;
        has_task.and(released)?;
    }
    Ok(marking.photos)
}

/// What is done until nothing is due.
struct Marking<'f> {
    photos: u64,
    positions: HashMap<AlbumId, Position>,
    failed: &'f mut HashMap<AlbumId, Instant>,
    /// The watermark that was drawn last.
    opened: Option<OpenWatermark>,
}

/// How far an album is.
#[derive(Clone, Copy)]
struct Position {
    version: i64,
    /// [`AlbumToMark::asked`] when its first photos were marked.
    asked: i64,
    after: PhotoId,
}

struct OpenWatermark {
    album: AlbumId,
    picture: Arc<WatermarkPicture>,
}

impl Marking<'_> {
    /// Marks until nothing is due; returns whether this process still has the task: `false` when another one has it, or is to.
    async fn mark_all(
        &mut self,
        store: &Store,
        marker: Marker,
        mut albums: Vec<AlbumToMark>,
    ) -> Result<bool, StoreError> {
        loop {
            let round = self.pick_round(&albums, marker);
            if round.is_empty() {
                return Ok(true);
            }
            for album in round {
                if !marker.take(store).await? {
                    return Ok(false);
                }
                match self.mark_batch(store, marker, album).await {
                    Ok(()) => {
                        self.failed.remove(&album.album);
                    }
                    Err(error) => self.skip(album.album, &error),
                }
            }
            albums = store.watermarks.list_albums_to_mark().await?;
        }
    }

    /// Returns the first album of each organization that is to be tried: not one that has just failed.
    fn pick_round(&self, albums: &[AlbumToMark], marker: Marker) -> Vec<AlbumToMark> {
        let mut organizations = HashSet::new();
        let is_tried = |album: &&AlbumToMark| {
            self.failed.get(&album.album).is_none_or(|failed| failed.elapsed() >= marker.retry_interval)
        };
        let tried = albums.iter().filter(is_tried);
        tried.filter(|album| organizations.insert(album.organization)).copied().collect()
    }

    /// Leaves an album for a while.
    fn skip(&mut self, album: AlbumId, error: &StoreError) {
        // Logged once, however often it fails until it succeeds.
        if self.failed.insert(album, Instant::now()).is_none() {
            tracing::warn!(album.id = %album, %error, "failed to draw watermarks of album, retrying every 30 s");
        }
    }

    /// Marks the next photos of an album.
    async fn mark_batch(
        &mut self,
        store: &Store,
        marker: Marker,
        album: AlbumToMark,
    ) -> Result<(), StoreError> {
        let begun = Instant::now();
        let Some(watermark) = self.open(store, album.album).await? else {
            return store.watermarks.note_all_marked(album).await;
        };
        let version = watermark.version();
        // Of another version all photos are to be marked.
        let position =
            self.positions.get(&album.album).copied().filter(|position| position.version == version);
        let (asked, after) = (position.map_or(album.asked, |at| at.asked), position.map(|at| at.after));
        let unmarked = store.watermarks.list_unmarked(album.album, version, after, marker.batch).await?;
        let Some(last) = unmarked.last() else {
            self.positions.remove(&album.album);
            return store.watermarks.note_all_marked(AlbumToMark { asked, ..album }).await;
        };
        self.photos += mark_photos(store, album, &unmarked, &watermark).await?;
        // Only now: those of a batch that failed are tried again.
        self.positions.insert(album.album, Position { version, asked, after: *last });
        sleep(MIN_PAUSE.max(begun.elapsed() * marker.pause_factor)).await;
        Ok(())
    }

    /// Returns the current watermark of an album; `None` if it has none or was closed. One that changes meanwhile asks for
    /// the album again.
    async fn open(
        &mut self,
        store: &Store,
        album: AlbumId,
    ) -> Result<Option<Arc<WatermarkPicture>>, StoreError> {
        let version = store.watermarks.version(album).await?;
        let is_current = |open: &&OpenWatermark| open.album == album && open.picture.version() == version;
        if let Some(open) = self.opened.as_ref().filter(is_current) {
            return Ok(Some(Arc::clone(&open.picture)));
        }
        let stored = store.watermarks.get(album).await?;
        let Some(watermark) = stored.filter(|watermark| watermark.version == version) else {
            return Ok(None);
        };
        match WatermarkPicture::open(&watermark) {
            Ok(picture) => {
                let picture = Arc::new(picture);
                self.opened = Some(OpenWatermark { album, picture: Arc::clone(&picture) });
                Ok(Some(picture))
            }
            Err(error) => {
                // It was decoded when it was set.
                tracing::error!(album.id = %album, %error, "cannot decode a watermark");
                Ok(None)
            }
        }
    }
}

/// Draws the watermark on previews; returns on how many. One that is missing or damaged is left out.
async fn mark_photos(
    store: &Store,
    album: AlbumToMark,
    photos: &[PhotoId],
    watermark: &Arc<WatermarkPicture>,
) -> Result<u64, StoreError> {
    let key = |photo, role| ObjectKey::photo(album.organization, album.album, photo, role);
    let read = |photo: PhotoId| async move {
        match store.blobs.read(&key(photo, ObjectRole::Preview), MAX_PREVIEW_BYTES).await {
            Ok(preview) => Ok(Some((photo, preview))),
            Err(error) if error.kind == StoreErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    };
    let found = stream::iter(photos.to_vec()).map(read).buffered(CONCURRENT_OBJECTS);
    let previews: Vec<(PhotoId, Bytes)> =
        found.try_filter_map(async |preview| Ok(preview)).try_collect().await?;
    let marked = draw(previews, Arc::clone(watermark)).await?;
    let photos: Vec<PhotoId> = marked.iter().map(|(marked, _)| marked.photo).collect();
    let write = |(marked, picture): (MarkedPhoto, Bytes)| async move {
        store.blobs.write(&key(marked.photo, ObjectRole::Marked), "image/jpeg", picture).await?;
        Ok::<_, StoreError>(marked)
    };
    // All are tried, and what was written is noted and looked at whatever failed.
    let written: Vec<Result<MarkedPhoto, StoreError>> =
        stream::iter(marked).map(write).buffered(CONCURRENT_OBJECTS).collect().await;
    let (written, failed): (Vec<_>, Vec<_>) = written.into_iter().partition(Result::is_ok);
    let written: Vec<MarkedPhoto> = written.into_iter().flatten().collect();
    let noted = store.watermarks.note_marked(album.album, &written, watermark.version()).await;
    remove_of_deleted(store, album, &photos).await?;
    noted?;
    failed.into_iter().find_map(Result::err).map_or(Ok(written.len() as u64), Err)
}

/// Photos that were deleted meanwhile leave no marked picture.
async fn remove_of_deleted(store: &Store, album: AlbumToMark, photos: &[PhotoId]) -> Result<(), StoreError> {
    let present = store.photos.get_many(album.album, photos).await?;
    for photo in photos.iter().filter(|photo| present.iter().all(|present| present.id != **photo)) {
        let key = ObjectKey::photo(album.organization, album.album, *photo, ObjectRole::Marked);
        store.blobs.delete(&key).await?;
    }
    Ok(())
}

/// Draws the watermark on previews, one after the other: this has one core at most, and none of the threads that answer requests.
/// Returns what each cost.
async fn draw(
    previews: Vec<(PhotoId, Bytes)>,
    watermark: Arc<WatermarkPicture>,
) -> Result<Vec<(MarkedPhoto, Bytes)>, StoreError> {
    let draw_all = move || {
        let mut marker = PreviewMarker::new().map_err(|error| failed(&error))?;
        let mut marked = Vec::with_capacity(previews.len());
        for (photo, preview) in previews {
            let cpu_before = thread_cpu_time();
            match marker.mark(&preview, &watermark) {
                Ok(picture) => {
                    let cpu = thread_cpu_time().saturating_sub(cpu_before);
                    let (bytes_read, bytes_written) = (preview.len() as u64, picture.len() as u64);
                    let spent = Spent { cpu, bytes_read, bytes_written, ..Spent::default() };
                    marked.push((MarkedPhoto { photo, spent }, picture));
                }
                Err(error) => tracing::warn!(photo.id = %photo, %error, "cannot draw a watermark"),
            }
        }
        Ok(marked)
    };
    tokio::task::spawn_blocking(draw_all).await.map_err(|error| failed(&error))?
}

fn failed(error: &dyn std::error::Error) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, format!("draw watermarks: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use photofinish_store::conformance::{AlbumFixture, test_settings};
    use photofinish_store::model::process::PipelineReport;
    use photofinish_store::model::watermark::{WatermarkChange, WatermarkPlacement, WatermarkPosition};

    use super::*;
    use crate::own_process::OwnProcess;
    use crate::role::Role;
    use crate::tasks::testing::WatchedMarking;

    /// A picture of one white pixel.
    const PNG: &[u8] =
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\x0b\
        IDATx\x9cc\xf8\x0f\x04\0\x09\xfb\x03\xfd\xfb^k+\0\0\0\0IEND\xaeB`\x82";

    /// Creates an organization with an album of so many photos that are to be marked.
    async fn create_unmarked(store: &Store, photos: usize) -> AlbumFixture {
        let fixture = AlbumFixture::create(store).await;
        for _ in 0..photos {
            fixture.add_ready_photo(Vec::new(), Vec::new()).await;
        }
        let placement = WatermarkPlacement { position: WatermarkPosition::TopLeft, opacity: 0.5, scale: 0.1 };
        let change = WatermarkChange { picture: Some(Bytes::from_static(PNG)), placement };
        store.watermarks.set(fixture.album, change).await.unwrap();
        fixture
    }

    /// Marks one photo at a time, and tries albums that failed at once.
    fn one_by_one() -> Marker {
        let retry_interval = Duration::ZERO;
        let marker = Marker::beside_photos(ProcessId::generate());
        Marker { batch: 1, pause_factor: 0, retry_interval, ..marker }
    }

    #[tokio::test]
    async fn organizations_have_their_photos_marked_in_turn() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(test_settings(folder.path())).await.unwrap();
        let large = create_unmarked(&store, 3).await;
        let small = create_unmarked(&store, 1).await;
        let watched = WatchedMarking::install(&mut store);
        mark_due(&store, one_by_one(), &mut HashMap::new()).await.unwrap();
        // The last look at each album finds nothing.
        let (large, small) = (large.album, small.album);
        assert_eq!(watched.marked_albums(), [large, small, large, small, large, large]);
        assert!(store.watermarks.list_albums_to_mark().await.unwrap().is_empty());
        assert!(store.tasks.list().await.unwrap().is_empty(), "the task is kept");
    }

    #[tokio::test]
    async fn an_album_that_failed_is_tried_again_before_all_others_are_marked() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(test_settings(folder.path())).await.unwrap();
        let failing = create_unmarked(&store, 1).await.album;
        let other = create_unmarked(&store, 3).await.album;
        let watched = WatchedMarking::install(&mut store);
        *watched.failing.lock().unwrap() = Some(failing);
        let mut failed = HashMap::new();
        mark_due(&store, one_by_one(), &mut failed).await.unwrap();
        // The batch that failed is tried again; the last look at each album finds nothing.
        assert_eq!(watched.marked_albums(), [failing, other, failing, other, failing, other, other]);
        assert!(store.watermarks.list_albums_to_mark().await.unwrap().is_empty());
        assert!(failed.is_empty(), "its next failure would not be logged");
    }

    #[tokio::test]
    async fn an_album_that_failed_is_left_alone_for_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(test_settings(folder.path())).await.unwrap();
        let album = create_unmarked(&store, 1).await.album;
        let watched = WatchedMarking::install(&mut store);
        *watched.failing.lock().unwrap() = Some(album);
        let marker = Marker { retry_interval: Duration::MAX, ..one_by_one() };
        let mut failed = HashMap::new();
        for _ in 0..2 {
            mark_due(&store, marker, &mut failed).await.unwrap();
            assert_eq!(watched.marked_albums(), [album]);
            assert!(store.tasks.list().await.unwrap().is_empty(), "the task is kept");
        }
    }

    #[tokio::test]
    async fn the_task_is_given_back_where_the_albums_cannot_be_listed_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(test_settings(folder.path())).await.unwrap();
        create_unmarked(&store, 1).await;
        let watched = WatchedMarking::install(&mut store);
        watched.failing_listing.store(2, Ordering::SeqCst);
        let error = mark_due(&store, one_by_one(), &mut HashMap::new()).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unavailable);
        assert!(store.tasks.list().await.unwrap().is_empty(), "the task is kept");
    }

    #[tokio::test]
    async fn who_answers_requests_draws_watermarks_while_nobody_reads_photos() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(test_settings(folder.path())).await.unwrap();
        let holders =
            async || store.tasks.list().await.unwrap().iter().map(|task| task.holder).collect::<Vec<_>>();
        let api = OwnProcess::new(Role::Serve, None);
        store.processes.report(&api.describe()).await.unwrap();
        let of_api = Marker::beside_requests(api.id);
        assert!(of_api.take(&store).await.unwrap());
        assert_eq!(holders().await, [api.id]);
        let mut worker = OwnProcess::new(Role::Work, None).describe();
        worker.report.pipeline = Some(PipelineReport::default());
        store.processes.report(&worker).await.unwrap();
        assert!(!of_api.take(&store).await.unwrap());
        assert!(holders().await.is_empty(), "the worker need not wait for the end of the lease");
        assert!(Marker::beside_photos(worker.id).take(&store).await.unwrap());
        store.processes.remove(worker.id).await.unwrap();
        assert!(!of_api.take(&store).await.unwrap(), "its lease has not ended");
    }
}
