//! Imports of start lists: what they keep, change and refuse.

use super::assert_error_kind;
use super::fixture::AlbumFixture;
use super::start_lists::{BIBS, add_event, import, import_of, judge_all, judged_and_left};
use crate::error::StoreErrorKind;
use crate::model::start_list::{EntryQuery, ImportMode, ImportedStartList, StartListEntry};
use crate::store::Store;

pub(super) async fn start_list_imports_suite(store: &Store) {
    a_list_with_the_same_bibs_has_no_photo_judged_again(store).await;
    a_merge_keeps_entries_and_a_list_has_a_limit(store).await;
}

/// Imports these bibs, each entry changed by `change`.
async fn import_changed(
    fixture: &AlbumFixture,
    mode: ImportMode,
    bibs: &[&str],
    change: fn(&mut StartListEntry),
) -> ImportedStartList {
    let mut list = import_of(fixture, mode, bibs);
    list.entries.iter_mut().for_each(change);
    fixture.store.start_lists.import(fixture.album, list).await.expect("imports")
}

async fn a_list_with_the_same_bibs_has_no_photo_judged_again(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    add_event(&fixture).await;
    let first = import_changed(&fixture, ImportMode::Replace, &BIBS, |_| {}).await;
    assert_eq!((first.version, first.photos), (1, 8));
    judge_all(store).await;
    let again = import_changed(&fixture, ImportMode::Replace, &BIBS, |_| {}).await;
    assert_eq!((again.version, again.entries, again.photos), (1, 3, 0));
    assert_eq!((again.added, again.removed), (0, 0));
    let with_wave =
        import_changed(&fixture, ImportMode::Replace, &BIBS, |entry| entry.wave = Some("B".to_owned())).await;
    assert_eq!((with_wave.version, with_wave.photos), (1, 0));
    import_changed(&fixture, ImportMode::Merge, &["35"], |entry| entry.team = Some("SC Lake".to_owned()))
        .await;
    assert_eq!(judged_and_left(&fixture).await, (8, 0));
    assert!(!store.judging.is_due().await.expect("looks"));
    let of_bibs = vec!["1207".to_owned(), "35".to_owned()];
    let found = store.start_lists.find_entries(fixture.album, of_bibs).await.expect("finds").expect("a list");
    assert_eq!((found["1207"].wave.as_deref(), found["35"].wave.as_deref()), (Some("B"), None));
    assert_eq!(found["35"].team.as_deref(), Some("SC Lake"), "what is no rule is stored all the same");
    let excluding = import_changed(&fixture, ImportMode::Merge, &["35"], |entry| entry.excluded = true).await;
    assert_eq!((excluding.version, excluding.removed, excluding.photos), (2, 1, 8));
    assert_eq!(judged_and_left(&fixture).await, (0, 8));
    judge_all(store).await;
    let other = import_changed(&fixture, ImportMode::Replace, &["1207", "34"], |_| {}).await;
    assert_eq!((other.version, other.added, other.removed, other.photos), (3, 1, 1, 8));
    judge_all(store).await;
    fixture.delete().await;
}

async fn a_merge_keeps_entries_and_a_list_has_a_limit(store: &Store) {
    let fixture = AlbumFixture::create(store).await;
    assert_eq!(store.start_lists.get(fixture.album).await.expect("gets"), None);
    let of_bib = vec!["1207".to_owned()];
    assert_eq!(store.start_lists.find_entries(fixture.album, of_bib.clone()).await.expect("finds"), None);
    let mut excluded = import_of(&fixture, ImportMode::Replace, &["35"]);
    excluded.entries[0].excluded = true;
    store.start_lists.import(fixture.album, excluded).await.expect("imports");
    let found = store.start_lists.find_entries(fixture.album, of_bib.clone()).await.expect("finds");
    assert_eq!(found, None, "of the others it says nothing");
    import(&fixture, &BIBS).await;
    let mut more = import_of(&fixture, ImportMode::Merge, &["33", "A7"]);
    more.entries[0].wave = Some("B".to_owned());
    more.entries.push(StartListEntry { excluded: true, ..StartListEntry::of("35".to_owned()) });
    let imported = store.start_lists.import(fixture.album, more.clone()).await.expect("imports");
    assert_eq!((imported.entries, imported.added, imported.removed), (3, 1, 1));
    let query = EntryQuery { limit: 2, ..EntryQuery::default() };
    let page = store.start_lists.list_entries(fixture.album, query.clone()).await.expect("lists");
    let bibs: Vec<&str> = page.entries.iter().map(|entry| entry.bib.as_str()).collect();
    assert_eq!((bibs.as_slice(), page.has_more, page.total), (&["1207", "33"][..], true, 3));
    assert_eq!(page.entries[1].wave.as_deref(), Some("B"));
    let rest = EntryQuery { after: Some("33".to_owned()), ..query.clone() };
    let rest = store.start_lists.list_entries(fixture.album, rest).await.expect("lists");
    assert_eq!((rest.entries.len(), rest.has_more), (1, false));
    let with_prefix = EntryQuery { prefix: "3".to_owned(), ..query };
    let page = store.start_lists.list_entries(fixture.album, with_prefix).await.expect("lists");
    assert_eq!((page.entries.len(), page.total), (1, 1));
    let found = store.start_lists.find_entries(fixture.album, of_bib).await.expect("finds").expect("a list");
    assert!(found.contains_key("1207"));
    more.max_entries = 3;
    let imported = store.start_lists.import(fixture.album, more.clone()).await.expect("imports");
    assert_eq!(imported.entries, 3, "an excluded number is no bib");
    more.max_entries = 2;
    let version = store.start_lists.get(fixture.album).await.expect("gets").expect("a list").version;
    assert_error_kind(store.start_lists.import(fixture.album, more).await, StoreErrorKind::TooLarge);
    let summary = store.start_lists.get(fixture.album).await.expect("gets").expect("a list");
    assert_eq!((summary.version, summary.entries), (version, 3), "nothing was imported");
    fixture.delete().await;
}
