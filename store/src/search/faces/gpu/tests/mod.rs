//! Which albums are on the device.

pub(crate) mod plain_gpu;

use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use plain_gpu::PlainGpu;

use super::*;
use crate::model::encoding::vector_to_bytes;
use crate::model::ids::{FaceId, PhotoId};
use crate::model::photo::{BoundingBox, Embedding};
use crate::search::faces::matrix::pass::Pass;
use crate::search::faces::matrix::{IndexedFace, UnlimitedMemory};
use crate::search::scoring::{FaceQuery, HitsPer, ScoreRule};
use photofinish_kernels::quantised::Scanner;

/// An album in memory, with faces in all directions of a plane.
struct TestAlbum {
    matrix: FaceMatrix,
    on_gpu: Arc<GpuAlbum>,
}

fn load_album(faces: usize) -> TestAlbum {
    let mut matrix = FaceMatrix::default();
    for number in 0..faces {
        let angle = number as f32;
        let face = IndexedFace {
            id: FaceId(number as i64),
            photo: PhotoId::generate(),
            bounding_box: BoundingBox { top: 0.0, left: 0.0, width: 0.1, height: 0.1 },
            model: "net@1",
            vector: &vector_to_bytes(&[angle.cos(), angle.sin()]),
        };
        matrix.push(&face, &UnlimitedMemory).unwrap();
    }
    TestAlbum { matrix, on_gpu: Arc::default() }
}

/// Looks at all faces of an album.
fn look(album: &TestAlbum, gpu: Option<&GpuPass>) {
    let pass = Pass { scanner: Scanner::new(&Device::Cpu), threads: 1, gpu };
    let probe = Embedding { model: "net@1".into(), vector: vec![1.0, 0.0] };
    let query = FaceQuery { probe, k: 3, per: HitsPer::Face, scores: -1.0..2.0, rule: ScoreRule::default() };
    assert!(album.matrix.shortlist(&pass, &[&query])[0].len() >= 3);
}

/// Makes a pass; returns whether the device took part in it.
fn search(albums: &GpuAlbums, album: &TestAlbum, now: Instant) -> bool {
    let gpu = albums.begin_pass(&album.on_gpu, &album.matrix, now);
    look(album, gpu.as_ref());
    let took_part = gpu.is_some();
    if let Some(gpu) = gpu {
        albums.end_pass(gpu, now);
    }
    took_part
}

fn open(gpu: &Arc<PlainGpu>, limit_bytes: usize) -> GpuAlbums {
    let gpu = Arc::clone(gpu);
    GpuAlbums::new(Box::new(move || Some(Arc::clone(&gpu) as Arc<dyn Gpu>)), limit_bytes)
}

#[test]
fn an_album_is_copied_when_it_is_searched_twice_within_a_minute() {
    let gpu = Arc::new(PlainGpu::default());
    let albums = open(&gpu, usize::MAX);
    let (album, small) = (load_album(100), load_album(MIN_FACES - 1));
    let start = Instant::now();
    assert!(!search(&albums, &album, start));
    assert!(!search(&albums, &album, start + HOT_TIME), "too late to be hot");
    assert_eq!(gpu.bytes(), 0);
    assert!(search(&albums, &album, start + HOT_TIME * 3 / 2));
    // The processor has looked at the first chunk.
    assert!(gpu.bytes() > 0 && gpu.bytes() < album.matrix.device_bytes());
    assert_eq!(albums.bytes(), gpu.bytes());
    for _ in 0..3 {
        assert!(!search(&albums, &small, start), "the processor needs no device for a small album");
    }
    drop(album);
    assert_eq!((albums.bytes(), gpu.bytes()), (0, 0));
}

#[test]
fn a_device_that_is_not_open_yet_is_asked_for_again() {
    let (gpu, is_open) = (Arc::new(PlainGpu::default()), Arc::new(AtomicBool::new(false)));
    let (lent, asked) = (Arc::clone(&gpu), Arc::clone(&is_open));
    let find_gpu = move || asked.load(Ordering::SeqCst).then(|| Arc::clone(&lent) as Arc<dyn Gpu>);
    let albums = GpuAlbums::new(Box::new(find_gpu), usize::MAX);
    let (album, now) = (load_album(100), Instant::now());
    assert!(!search(&albums, &album, now) && !search(&albums, &album, now));
    is_open.store(true, Ordering::SeqCst);
    assert!(search(&albums, &album, now));
}

#[test]
fn nobody_waits_for_the_albums_while_the_device_is_asked_for() {
    let albums: Arc<OnceLock<GpuAlbums>> = Arc::default();
    let asking = Arc::clone(&albums);
    let find_gpu = move || {
        let albums = asking.get().expect("they ask for it");
        assert!(albums.state.try_lock().is_ok(), "whoever records metrics would wait");
        Some(Arc::new(PlainGpu::default()) as Arc<dyn Gpu>)
    };
    let albums = albums.get_or_init(|| GpuAlbums::new(Box::new(find_gpu), usize::MAX));
    let (album, now) = (load_album(100), Instant::now());
    assert!(!search(albums, &album, now) && search(albums, &album, now));
}

#[test]
fn the_least_recently_searched_album_leaves_and_none_that_is_hot() {
    let gpu = Arc::new(PlainGpu::default());
    let [a, b, c] = [100, 100, 100].map(load_album);
    let albums = open(&gpu, 2 * a.matrix.device_bytes());
    let start = Instant::now();
    let seconds = |count| start + Duration::from_secs(count);
    for (album, time) in [(&a, 0), (&a, 10), (&b, 0), (&b, 20)] {
        assert_eq!(search(&albums, album, seconds(time)), time > 0);
    }
    assert!(!search(&albums, &c, seconds(30)));
    assert!(!search(&albums, &c, seconds(60)), "two hot albums fill the memory");
    assert!(a.on_gpu.bytes() > 0 && b.on_gpu.bytes() > 0);
    assert!(search(&albums, &c, seconds(71)));
    assert!(a.on_gpu.bytes() == 0 && b.on_gpu.bytes() > 0 && c.on_gpu.bytes() > 0);
    assert_eq!(albums.bytes(), gpu.bytes());

    // One that is larger than all of the memory never takes part, and none leaves for it.
    let huge = load_album(300);
    assert!(!search(&albums, &huge, seconds(500)) && !search(&albums, &huge, seconds(501)));
    assert!(b.on_gpu.bytes() > 0 && c.on_gpu.bytes() > 0);
    assert!(gpu.bytes() <= albums.limit_bytes);
}

#[test]
fn a_device_is_left_alone_after_a_failure_and_not_asked_again_once_it_is_lost() {
    let gpu = Arc::new(PlainGpu::default());
    let albums = open(&gpu, usize::MAX);
    let [a, b] = [100, 100].map(load_album);
    let start = Instant::now();
    for album in [&a, &a, &b, &b] {
        search(&albums, album, start);
    }
    assert!(a.on_gpu.bytes() > 0 && b.on_gpu.bytes() > 0);
    gpu.fail(plain_gpu::Fault { call: 1, error: GpuError::OutOfMemory("none left".into()) });
    assert!(search(&albums, &a, start));
    assert_eq!(gpu.bytes(), 0, "what was there is given up");
    let calls = gpu.count_calls();
    assert!(!search(&albums, &a, start + RETRY_DELAY / 2));
    assert_eq!(gpu.count_calls(), calls);
    assert!(search(&albums, &a, start + RETRY_DELAY) && gpu.bytes() > 0);

    gpu.fail(plain_gpu::Fault { call: 1, error: GpuError::Lost("gone".into()) });
    assert!(search(&albums, &a, start + RETRY_DELAY));
    let calls = gpu.count_calls();
    for minutes in 1..10 {
        assert!(!search(&albums, &a, start + RETRY_DELAY + minutes * HOT_TIME / 2));
    }
    assert_eq!((gpu.count_calls(), gpu.bytes(), albums.bytes()), (calls, 0, 0));
}

#[test]
fn passes_that_end_after_a_failure_of_another_one_leave_nothing_on_the_device() {
    let gpu = Arc::new(PlainGpu::default());
    let albums = open(&gpu, usize::MAX);
    let [a, b] = [100, 100].map(load_album);
    let now = Instant::now();
    assert!(!search(&albums, &a, now) && !search(&albums, &b, now));
    let under_way = albums.begin_pass(&b.on_gpu, &b.matrix, now).unwrap();
    gpu.fail(plain_gpu::Fault { call: 1, error: GpuError::OutOfMemory("none left".into()) });
    assert!(search(&albums, &a, now));
    look(&b, Some(&under_way));
    assert!(gpu.bytes() > 0);
    albums.end_pass(under_way, now);
    assert_eq!((gpu.bytes(), albums.bytes()), (0, 0));
}
