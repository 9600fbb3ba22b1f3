//! Start lists: photos are judged by the list that their album has, however it came to it.

use std::time::Duration;

use photofinish_kernels::lattice::Lattice;

use super::assert_error_kind;
use super::fixture::{AlbumFixture, LONG, album_config, empty_results, text};
use super::start_list_imports::start_list_imports_suite;
use crate::error::StoreErrorKind;
use crate::model::album::{AlbumChange, StartListConfig};
use crate::model::ids::{PhotoId, ProcessId};
use crate::model::photo::{DetectedText, TextIndexState, TextLattice, UnindexedReason};
use crate::model::process::{Task, TaskLease};
use crate::model::start_list::{ImportMode, StartListEntry, StartListImport};
use crate::store::Store;
use crate::traits::{PhotoResults, TextMatch, TextQuery};

/// Checks the backends of [`crate::traits::StartLists`] and [`crate::traits::Judging`].
pub async fn start_lists_suite(store: &Store) {
    a_list_after_the_photos_judges_as_one_before_them(store).await;
    a_photo_that_was_judged_by_an_old_list_is_judged_again(store).await;
    another_goes_on_where_a_killed_holder_stopped(store).await;
    only_photos_whose_texts_changed_are_told(store).await;
    start_list_imports_suite(store).await;
    a_list_that_is_disabled_or_deleted_leaves_what_was_read(store).await;
    a_text_shows_what_else_it_may_be(store).await;
    a_bib_is_found_with_and_without_the_zeros_of_the_list(store).await;
    only_the_holder_of_the_task_judges(store).await;
    an_organization_with_many_albums_has_one_share_of_judging(store).await;
}

/// A reading of these characters, of which the first may also be `other`.
pub fn reading(bib: &str, other: char, confidence: f64) -> DetectedText {
    let alphabet: Vec<char> = ('0'..='9').chain('A'..='Z').collect();
    let mut columns = Vec::new();
    for (at, character) in bib.chars().enumerate() {
        let of = |it: &char| match it {
            it if *it == character => 0.6,
            it if *it == other && at == 0 => 0.39,
            _ => 0.0,
        };
        columns.push(0.0);
        columns.extend(alphabet.iter().map(of));
        columns.push(1.0);
        columns.extend(alphabet.iter().map(|_| 0.0));
    }
    let lattice = Lattice::from_probabilities(&columns, &alphabet);
    let index_state = if confidence < 0.9 { TextIndexState::Candidate } else { TextIndexState::Indexed };
    let lattice = Some(TextLattice { recogniser: "suite@1".to_owned(), lattice });
    DetectedText { index_state, lattice, ..text(bib, confidence) }
}

/// What the photos of an event show, one text each, but for the last.
fn event() -> Vec<Vec<DetectedText>> {
    vec![
        vec![reading("7207", '1', 0.85)],
        vec![reading("7207", '1', 0.95)],
        vec![reading("4711", 'X', 0.97)],
        vec![reading("1207", '7', 0.97)],
        vec![DetectedText { lattice: None, ..reading("I207", 'X', 0.99) }],
        Vec::new(),
        vec![reading("1207", '7', 0.99), reading("7207", '1', 0.92)],
        vec![DetectedText { max_confidence: 0.89, ..reading("7207", '1', 0.85) }],
    ]
}

pub(super) fn import_of(fixture: &AlbumFixture, mode: ImportMode, bibs: &[&str]) -> StartListImport {
    let entries = bibs.iter().map(|bib| StartListEntry::of((*bib).to_owned())).collect();
    StartListImport { mode, entries, imported_by: fixture.key.id, max_entries: 10 }
}

pub(super) async fn import(fixture: &AlbumFixture, bibs: &[&str]) {
    let list = import_of(fixture, ImportMode::Replace, bibs);
    let imported = fixture.store.start_lists.import(fixture.album, list).await.expect("imports");
    assert_eq!(imported.entries, bibs.len() as u64);
}

async fn take(store: &Store) -> TaskLease {
    let taken =
        store.tasks.take(Task::Judging, ProcessId::generate(), LONG).await.expect("asks for the task");
    taken.expect("nobody has it")
}

/// Judges until nothing is left; returns how many photos have changed.
pub(super) async fn judge_all(store: &Store) -> u64 {
    let lease = take(store).await;
    let mut changed = 0;
    while store.judging.is_due().await.expect("looks") {
        changed += store.judging.judge(lease).await.expect("judges").changed;
    }
    store.tasks.release(lease).await.expect("releases");
    changed
}

pub(super) async fn add_event(fixture: &AlbumFixture) -> Vec<PhotoId> {
    let mut photos = Vec::new();
    for texts in event() {
        photos.push(fixture.add_ready_photo(Vec::new(), texts).await);
    }
    photos
}

async fn texts_of(fixture: &AlbumFixture, photos: &[PhotoId]) -> Vec<Vec<DetectedText>> {
    let mut all = Vec::new();
    for photo in photos {
        let (_, texts) = fixture.store.photos.get_detections(fixture.album, *photo).await.expect("reads");
        all.push(texts);
    }
    all
}

pub(super) const BIBS: [&str; 3] = ["1207", "33", "35"];

async fn a_list_after_the_photos_judges_as_one_before_them(store: &Store) {
    let (before, after) = (AlbumFixture::create(store).await, AlbumFixture::create(store).await);
    import(&before, &BIBS).await;
    let expected = add_event(&before).await;
    let photos = add_event(&after).await;
    import(&after, &BIBS).await;
    let summary = store.start_lists.get(after.album).await.expect("gets").expect("a list");
    assert_eq!((summary.entries, summary.judged, summary.left, summary.without_lattice), (3, 0, 8, 1));
    judge_all(store).await;
    let judged = texts_of(&after, &photos).await;
    assert_eq!(judged, texts_of(&before, &expected).await);
    let found: Vec<(&str, TextIndexState)> =
        judged.iter().flatten().map(|text| (text.text.as_str(), text.index_state)).collect();
    let (indexed, not_listed) =
        (TextIndexState::Indexed, TextIndexState::Unindexed(UnindexedReason::NotOnStartList));
    let expected = [
        ("1207", indexed),
        ("1207", indexed),
        ("4711", not_listed),
        ("1207", indexed),
        ("1207", TextIndexState::Candidate),
        ("1207", indexed),
        ("7207", not_listed),
        ("1207", TextIndexState::Candidate),
    ];
    assert_eq!(found, expected);
    assert_eq!(judged[0][0].as_read().text, "7207", "what was read is kept");
    assert_eq!(judged[7][0].confidence, 0.89, "no list is surer than the reader allows");
    let summary = store.start_lists.get(after.album).await.expect("gets").expect("a list");
    assert_eq!((summary.judged, summary.left), (8, 0));
    let hits = async |text: &str, exact| {
        let query = TextQuery { text: text.into(), exact };
        store.texts.search(after.album, &query).await.expect("searches").len()
    };
    assert_eq!((hits("1207", true).await, hits("4711", true).await, hits("4711", false).await), (4, 0, 1));
    before.delete().await;
    after.delete().await;
}

/// Adds 1,152 photos that show what those of the event do, again and again: more than two transactions judge.
async fn add_many_events(fixture: &AlbumFixture) -> Vec<PhotoId> {
    let mut photos = Vec::new();
    for _ in 0..18 {
        let shown: Vec<Vec<DetectedText>> = (0..8).flat_map(|_| event()).collect();
        let added = fixture.queue_photos(shown.len()).await;
        let leases = fixture.lease_fresh(shown.len(), LONG).await;
        assert_eq!(leases.len(), shown.len());
        let results = leases.iter().map(|lease| {
            let place = added.iter().position(|photo| *photo == lease.photo).expect("one of these photos");
            PhotoResults { texts: shown[place].clone(), ..empty_results(lease) }
        });
        fixture.store.queue.finish(results.collect()).await.expect("finishes photos");
        photos.extend(added);
    }
    photos
}

/// How many photos were judged by the list of their album, and how many are left.
pub(super) async fn judged_and_left(fixture: &AlbumFixture) -> (u64, u64) {
    let summary = fixture.store.start_lists.get(fixture.album).await.expect("gets").expect("a list");
    (summary.judged, summary.left)
}

async fn another_goes_on_where_a_killed_holder_stopped(store: &Store) {
    let whole = AlbumFixture::create(store).await;
    let expected = add_many_events(&whole).await;
    import(&whole, &BIBS).await;
    judge_all(store).await;
    let halved = AlbumFixture::create(store).await;
    let photos = add_many_events(&halved).await;
    import(&halved, &BIBS).await;
    let total = photos.len() as u64;
    let killed = take(store).await;
    let begun = store.judging.judge(killed).await.expect("judges").photos;
    assert!(begun > 0 && 2 * begun < total, "{begun} of {total} are no beginning");
    assert_eq!(judged_and_left(&halved).await, (begun, total - begun));
    // Killed at the second step, wherever that is by then: it is written as a whole or not at all.
    drop(tokio::time::timeout(Duration::from_millis(20), store.judging.judge(killed)).await);
    assert!(store.tasks.renew(killed, Duration::ZERO).await.expect("ends the lease"));
    let next = take(store).await;
    let (mut judged, left) = judged_and_left(&halved).await;
    assert!([begun, 2 * begun].contains(&judged), "{judged} photos in steps of {begun}");
    // Were it not dead, it could not go on.
    assert_error_kind(store.judging.judge(killed).await, StoreErrorKind::Conflict);
    assert_eq!(judged_and_left(&halved).await, (judged, left));
    while store.judging.is_due().await.expect("looks") {
        judged += store.judging.judge(next).await.expect("judges").photos;
    }
    store.tasks.release(next).await.expect("releases");
    assert_eq!(judged, total, "each photo once");
    assert_eq!(judged_and_left(&halved).await, (total, 0));
    let (halved_texts, whole_texts) = (texts_of(&halved, &photos).await, texts_of(&whole, &expected).await);
    assert!(halved_texts == whole_texts, "judged in parts, photos say something else than judged in one go");
    whole.delete().await;
    halved.delete().await;
}

/// A worker that knows the list of a moment ago.
async fn a_photo_that_was_judged_by_an_old_list_is_judged_again(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    import(&fixture, &["4711"]).await;
    fixture.add_ready_photo(Vec::new(), Vec::new()).await;
    judge_all(store).await;
    let photo = fixture.queue_photos(1).await[0];
    let lease = fixture.lease_fresh(1, LONG).await.pop().expect("a photo waits");
    import(&fixture, &BIBS).await;
    // This store has judged by the first list last.
    let texts = vec![reading("7207", '1', 0.95)];
    let results = PhotoResults { texts, ..empty_results(&lease) };
    store.queue.finish(vec![results]).await.expect("finishes");
    judge_all(store).await;
    assert_eq!(texts_of(&fixture, &[photo]).await[0][0].text, "1207");
    fixture.delete().await;
}

async fn only_photos_whose_texts_changed_are_told(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    add_event(&fixture).await;
    import(&fixture, &BIBS).await;
    // All but the photo without texts and the one that was read as it is listed.
    assert_eq!(judge_all(store).await, 6);
    import(&fixture, &BIBS).await;
    assert_eq!(judge_all(store).await, 0, "the same list");
    fixture.delete().await;
}

async fn a_list_that_is_disabled_or_deleted_leaves_what_was_read(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photos = add_event(&fixture).await;
    let read = texts_of(&fixture, &photos).await;
    let checked =
        store.start_lists.check(fixture.album, import_of(&fixture, ImportMode::Replace, &BIBS), 100);
    let checked = checked.await.expect("checks");
    assert_eq!((checked.photos, checked.indexed_now, checked.indexed_then, checked.changed), (8, 6, 4, 6));
    assert_eq!(texts_of(&fixture, &photos).await, read, "a check keeps nothing");
    import(&fixture, &BIBS).await;
    judge_all(store).await;
    assert_ne!(texts_of(&fixture, &photos).await, read);
    let mut config = store.albums.get(&fixture.tenant, fixture.album).await.expect("gets").config;
    config.start_list = StartListConfig { enabled: false, ..config.start_list };
    let change = AlbumChange { config: Some(config), judge_again: true, ..AlbumChange::default() };
    store.albums.update(&fixture.tenant, fixture.album, change.clone()).await.expect("updates");
    judge_all(store).await;
    assert_eq!(texts_of(&fixture, &photos).await, read);
    import(&fixture, &BIBS).await;
    judge_all(store).await;
    assert_eq!(texts_of(&fixture, &photos).await, read, "it is disabled still");
    store.start_lists.delete(fixture.album).await.expect("deletes");
    judge_all(store).await;
    assert_eq!(texts_of(&fixture, &photos).await, read);
    assert_eq!(store.start_lists.get(fixture.album).await.expect("gets"), None);
    fixture.delete().await;
}

async fn a_text_shows_what_else_it_may_be(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photos = add_event(&fixture).await;
    let explain = async |photo: PhotoId| {
        let explained = store.start_lists.explain_texts(fixture.album, photo).await.expect("explains");
        let shown = explained.into_iter().map(|it| {
            let texts: Vec<String> =
                it.alternatives.into_iter().map(|alternative| alternative.text).collect();
            (it.text.text, texts)
        });
        shown.collect::<Vec<_>>()
    };
    assert_eq!(explain(photos[0]).await, [("7207".to_owned(), vec![])], "no list");
    import(&fixture, &["1207", "7207"]).await;
    judge_all(store).await;
    let both = || vec!["7207".to_owned(), "1207".to_owned()];
    assert_eq!(explain(photos[0]).await, [("7207".to_owned(), both())]);
    assert_eq!(
        explain(photos[4]).await,
        [("I207".to_owned(), vec![])],
        "without a lattice, and like two bibs"
    );
    let explained = explain(photos[6]).await;
    assert_eq!(explained.len(), 2);
    assert_eq!(explained[0].1.first(), Some(&"1207".to_owned()));
    assert!(explained[1].1.iter().all(|text| text != "1207") || explained[1].1[0] == "7207");
    assert_eq!(explain(photos[5]).await, []);
    fixture.delete().await;
}

async fn a_bib_is_found_with_and_without_the_zeros_of_the_list(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    let photo = fixture.add_ready_photo(Vec::new(), vec![text("42", 0.97)]).await;
    let hits = async |text: &str, exact| {
        let query = TextQuery { text: text.into(), exact };
        let hits = store.texts.search(fixture.album, &query).await.expect("searches");
        hits.into_iter().map(|hit| (hit.photo, hit.match_kind)).collect::<Vec<_>>()
    };
    let found = [(photo, TextMatch::Exact)];
    import(&fixture, &["0042", "7"]).await;
    assert_eq!(hits("0042", true).await, found, "before it is judged");
    judge_all(store).await;
    assert_eq!(texts_of(&fixture, &[photo]).await[0][0].text, "0042");
    for bib in ["42", "042", "0042"] {
        assert_eq!(hits(bib, true).await, found, "{bib}");
        assert_eq!(hits(bib, false).await, found, "{bib}");
    }
    import(&fixture, &["0042", "42"]).await;
    judge_all(store).await;
    assert_eq!(hits("42", true).await, found);
    assert_eq!(hits("0042", true).await, [], "another runner's");
    import(&fixture, &["0042", "7"]).await;
    let mut config = store.albums.get(&fixture.tenant, fixture.album).await.expect("gets").config;
    config.start_list = StartListConfig { enabled: false, ..config.start_list };
    let change = AlbumChange { config: Some(config), judge_again: true, ..AlbumChange::default() };
    store.albums.update(&fixture.tenant, fixture.album, change).await.expect("updates");
    judge_all(store).await;
    assert_eq!(hits("0042", true).await, [], "the list is not used");
    fixture.delete().await;
}

async fn only_the_holder_of_the_task_judges(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    add_event(&fixture).await;
    import(&fixture, &BIBS).await;
    let taken = store.tasks.take(Task::Judging, ProcessId::generate(), Duration::ZERO).await.expect("asks");
    let expired = taken.expect("nobody has it");
    let lease = take(store).await;
    assert_error_kind(store.judging.judge(expired).await, StoreErrorKind::Conflict);
    store.tasks.release(lease).await.expect("releases");
    judge_all(store).await;
    fixture.delete().await;
}

async fn an_organization_with_many_albums_has_one_share_of_judging(store: &Store) {
    let mut albums = vec![AlbumFixture::create(store).await];
    for _ in 0..5 {
        let album = albums[0].create_album(album_config()).await;
        albums.push(album);
    }
    let other = AlbumFixture::create(store).await;
    let others = [other.create_album(album_config()).await, other];
    for fixture in albums.iter().chain(&others) {
        fixture.add_ready_photo(Vec::new(), vec![reading("7207", '1', 0.95)]).await;
    }
    judge_all(store).await;
    for fixture in albums.iter().chain(&others) {
        import(fixture, &BIBS).await;
    }
    let lease = take(store).await;
    let mut photos = 0;
    while photos < 4 {
        photos += store.judging.judge(lease).await.expect("judges").photos;
    }
    store.tasks.release(lease).await.expect("releases");
    for fixture in &others {
        assert_eq!(judged_and_left(fixture).await, (1, 0), "it waited for more than one album of another");
    }
    judge_all(store).await;
    for fixture in albums.into_iter().chain(others) {
        fixture.delete().await;
    }
}
