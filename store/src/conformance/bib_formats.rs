//! Formats of bibs: learned from what albums show, and used where no start list is.

use std::time::Duration;

use super::fixture::{AlbumFixture, LONG, text};
use crate::model::album::AlbumChange;
use crate::model::bib_format::{BibFormatConfig, BibShape};
use crate::model::ids::{PhotoId, ProcessId};
use crate::model::photo::{DetectedText, TextIndexState, UnindexedReason};
use crate::model::process::Task;
use crate::model::start_list::{ImportMode, JudgedPhotos, StartListEntry, StartListImport};
use crate::store::Store;
use crate::traits::TextQuery;

/// Checks what the backends of [`crate::traits::StartLists`] and [`crate::traits::Judging`] do with formats.
pub async fn bib_formats_suite(store: &Store) {
    a_part_of_a_bib_is_found_by_fuzzy_searches_once_the_format_is_known(store).await;
    the_organizer_fixes_the_format_or_switches_it_off(store).await;
    a_start_list_wins(store).await;
    a_few_bibs_show_no_format(store).await;
    an_excluded_number_says_nothing_of_the_format(store).await;
    a_bib_that_is_no_part_of_another_has_no_photo_judged_again(store).await;
    a_format_is_learned_while_another_album_is_judged(store).await;
}

/// Learns and judges until nothing is left; returns how many photos have changed.
pub(super) async fn judge_all(store: &Store) -> u64 {
    learn_and_judge(store).await.changed
}

/// Learns and judges until nothing is left; returns what was done to photos.
async fn learn_and_judge(store: &Store) -> JudgedPhotos {
    let taken =
        store.tasks.take(Task::Judging, ProcessId::generate(), LONG).await.expect("asks for the task");
    let lease = taken.expect("nobody has it");
    let mut done = JudgedPhotos::default();
    while store.judging.is_due().await.expect("looks") {
        let step = store.judging.judge(lease).await.expect("judges");
        (done.photos, done.changed) = (done.photos + step.photos, done.changed + step.changed);
    }
    store.tasks.release(lease).await.expect("releases");
    done
}

/// Adds photos of so many runners from 2001 on, four in each.
pub(super) async fn add_runners(fixture: &AlbumFixture, runners: u32) {
    let bibs: Vec<u32> = (0..runners).map(|runner| 2001 + 7 * runner).collect();
    for four in bibs.chunks(4) {
        let texts = four.iter().map(|bib| text(&bib.to_string(), 0.98)).collect();
        fixture.add_ready_photo(Vec::new(), texts).await;
    }
}

async fn add_bib(fixture: &AlbumFixture, bib: &str) -> PhotoId {
    fixture.add_ready_photo(Vec::new(), vec![text(bib, 0.97)]).await
}

async fn state_of(fixture: &AlbumFixture, photo: PhotoId) -> TextIndexState {
    let (_, texts) = fixture.store.photos.get_detections(fixture.album, photo).await.expect("reads");
    let [DetectedText { index_state, .. }] = texts.as_slice() else { panic!("one text: {texts:?}") };
    *index_state
}

async fn hits(fixture: &AlbumFixture, text: &str, exact: bool) -> Vec<PhotoId> {
    let query = TextQuery { text: text.into(), exact };
    let found = fixture.store.texts.search(fixture.album, &query).await.expect("searches");
    found.into_iter().map(|hit| hit.photo).collect()
}

async fn configure(fixture: &AlbumFixture, format: &str) {
    let album = fixture.store.albums.get(&fixture.tenant, fixture.album).await.expect("gets");
    let mut config = album.config;
    config.bib_format = format.parse().expect("a format");
    let change = AlbumChange { config: Some(config), judge_again: true, ..AlbumChange::default() };
    fixture.store.albums.update(&fixture.tenant, fixture.album, change).await.expect("updates");
    judge_all(&fixture.store).await;
}

/// Imports a list of one entry.
async fn import(fixture: &AlbumFixture, entry: StartListEntry) {
    let (mode, imported_by) = (ImportMode::Replace, fixture.key.id);
    let list = StartListImport { mode, entries: vec![entry], imported_by, max_entries: 10 };
    fixture.store.start_lists.import(fixture.album, list).await.expect("imports");
}

const PARTIAL: TextIndexState = TextIndexState::Unindexed(UnindexedReason::Partial);

async fn a_part_of_a_bib_is_found_by_fuzzy_searches_once_the_format_is_known(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let before = add_bib(&fixture, "203").await;
    add_runners(&fixture, 80).await;
    assert_eq!(state_of(&fixture, before).await, TextIndexState::Indexed, "nothing is learned yet");
    assert_eq!(judge_all(store).await, 1);
    let format = store.start_lists.get_format(fixture.album).await.expect("gets");
    assert_eq!((format.shapes.as_slice(), format.readings), (&[BibShape::of("2001")][..], 81));
    assert!((format.share - 80.0 / 81.0).abs() < 1e-9, "{}", format.share);
    let after = add_bib(&fixture, "029").await;
    for photo in [before, after] {
        assert_eq!(state_of(&fixture, photo).await, PARTIAL);
    }
    assert_eq!((hits(&fixture, "203", true).await, hits(&fixture, "1203", true).await), (vec![], vec![]));
    assert!(hits(&fixture, "1203", false).await.contains(&before));
    assert_eq!(hits(&fixture, "2001", true).await.len(), 1, "what fits is found as before");
    // The runner of 203 is real: seen again.
    add_bib(&fixture, "203").await;
    add_runners(&fixture, 16).await;
    judge_all(store).await;
    assert_eq!(state_of(&fixture, before).await, TextIndexState::Indexed);
    fixture.delete().await;
}

async fn the_organizer_fixes_the_format_or_switches_it_off(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let (whole, part) = (add_bib(&fixture, "1207").await, add_bib(&fixture, "207").await);
    judge_all(store).await;
    assert_eq!(state_of(&fixture, part).await, TextIndexState::Indexed);
    configure(&fixture, "9999").await;
    assert_eq!(
        (state_of(&fixture, whole).await, state_of(&fixture, part).await),
        (TextIndexState::Indexed, PARTIAL)
    );
    configure(&fixture, "off").await;
    assert_eq!(state_of(&fixture, part).await, TextIndexState::Indexed, "what was read is kept");
    let config = store.albums.get(&fixture.tenant, fixture.album).await.expect("gets").config;
    assert_eq!(config.bib_format, BibFormatConfig::Off);
    fixture.delete().await;
}

async fn a_start_list_wins(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    add_runners(&fixture, 80).await;
    let part = add_bib(&fixture, "203").await;
    judge_all(store).await;
    assert_eq!(state_of(&fixture, part).await, PARTIAL);
    import(&fixture, StartListEntry::of("203".to_owned())).await;
    judge_all(store).await;
    assert_eq!(state_of(&fixture, part).await, TextIndexState::Indexed);
    store.start_lists.delete(fixture.album).await.expect("deletes");
    judge_all(store).await;
    assert_eq!(state_of(&fixture, part).await, PARTIAL);
    fixture.delete().await;
}

async fn a_few_bibs_show_no_format(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    add_runners(&fixture, 40).await;
    let part = add_bib(&fixture, "203").await;
    assert_eq!(judge_all(store).await, 0);
    let format = store.start_lists.get_format(fixture.album).await.expect("gets");
    assert_eq!((format.shapes.len(), format.readings), (0, 41));
    assert_eq!(state_of(&fixture, part).await, TextIndexState::Indexed);
    let window = Duration::from_secs(3600);
    let settled = store.photos.count_settled_within(fixture.album, window).await.expect("counts");
    assert_eq!(settled, 11, "learning reads no photo again");
    fixture.delete().await;
}

async fn an_excluded_number_says_nothing_of_the_format(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    for bib in 201..281 {
        let texts = vec![text(&bib.to_string(), 0.98), text("2024", 0.98)];
        fixture.add_ready_photo(Vec::new(), texts).await;
    }
    let shapes = async || store.start_lists.get_format(fixture.album).await.expect("gets a format").shapes;
    judge_all(store).await;
    assert!(shapes().await.is_empty(), "half of all readings are one number");
    import(&fixture, StartListEntry { excluded: true, ..StartListEntry::of("2024".to_owned()) }).await;
    judge_all(store).await;
    assert_eq!(shapes().await, [BibShape::of("201")]);
    store.start_lists.delete(fixture.album).await.expect("deletes");
    judge_all(store).await;
    assert!(shapes().await.is_empty(), "it may be a bib again");
    fixture.delete().await;
}

async fn a_bib_that_is_no_part_of_another_has_no_photo_judged_again(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    add_runners(&fixture, 80).await;
    judge_all(store).await;
    let photos = [add_bib(&fixture, "10K").await, add_bib(&fixture, "10K").await];
    add_runners(&fixture, 16).await;
    assert_eq!(learn_and_judge(store).await.photos, 0);
    let format = store.start_lists.get_format(fixture.album).await.expect("gets");
    assert_eq!((format.shapes.as_slice(), format.readings), (&[BibShape::of("2001")][..], 81));
    for photo in photos {
        assert_eq!(state_of(&fixture, photo).await, TextIndexState::Indexed);
    }
    fixture.delete().await;
}

async fn a_format_is_learned_while_another_album_is_judged(store: &Store) {
    let (judged, learned) = (AlbumFixture::create(store).await, AlbumFixture::create(store).await);
    add_bib(&judged, "203").await;
    judge_all(store).await;
    import(&judged, StartListEntry::of("203".to_owned())).await;
    add_runners(&learned, 80).await;
    let taken = store.tasks.take(Task::Judging, ProcessId::generate(), LONG).await.expect("asks");
    let lease = taken.expect("nobody has it");
    for _ in 0..2 {
        store.judging.judge(lease).await.expect("judges or learns");
    }
    let format = store.start_lists.get_format(learned.album).await.expect("gets");
    assert_eq!(format.shapes, [BibShape::of("2001")], "the other album is judged to the end first");
    store.tasks.release(lease).await.expect("releases");
    judge_all(store).await;
    judged.delete().await;
    learned.delete().await;
}
