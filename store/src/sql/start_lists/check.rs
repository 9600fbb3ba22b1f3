//! What an import would change, by the texts of some photos.

use crate::bibs::judge::{BibRule, judge_photo};
use crate::error::StoreError;
use crate::model::album::AlbumConfig;
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::{DetectedText, TextIndexState};
use crate::model::start_list::{CheckedStartList, JudgedText, StartListImport};
use crate::sql::database::Database;
use crate::sql::row_types::from_json;
use crate::sql::statement::query;
use crate::traits::Result;

use super::import::{by_bib, merge};
use super::judging::{TextsByPhoto, load_texts};
use super::offload::offload;
use super::{entries, formats};

const OPERATION: &str = "check a start list";

/// Texts that are shown.
const EXAMPLES: usize = 20;

/// Photos whose texts are in memory at once.
const PHOTOS_AT_ONCE: usize = 500;

/// Holds no connection while it judges: a check of 5,000 photos takes a core for a second.
pub(super) async fn check(
    database: &Database,
    album: AlbumId,
    import: StartListImport,
    max_photos: u32,
) -> Result<CheckedStartList> {
    let mut snapshot = database.begin_snapshot(OPERATION).await?;
    let get = "select config from album where id = $1 and closed_at is null";
    let row: Option<(String,)> = query(OPERATION, get).bind(album).fetch_optional(&mut snapshot).await?;
    let (config,) = row.ok_or_else(|| StoreError::not_found(format!("album {album}")))?;
    let config: AlbumConfig = from_json(&config)?;
    let before = entries::load(&mut snapshot, OPERATION, album).await?;
    let ready = "select id from photo where album = $1 and state = 'ready' order by id limit $2";
    let photos: Vec<(PhotoId,)> =
        query(OPERATION, ready).bind(album).bind(i64::from(max_photos)).fetch_all(&mut snapshot).await?;
    let learned = formats::load(&mut snapshot, OPERATION, album).await?;
    drop(snapshot);
    let make_rule = move || -> Result<BibRule> {
        let merged: Vec<_> = merge(&by_bib(&before), &import)?.into_values().cloned().collect();
        Ok(BibRule::new(&merged, &config, learned))
    };
    let mut rule = offload(OPERATION, make_rule).await??;
    let mut checked = CheckedStartList { photos: photos.len() as u64, ..CheckedStartList::default() };
    for photos in photos.chunks(PHOTOS_AT_ONCE) {
        let mut reader = database.acquire_reader(OPERATION).await?;
        let texts = load_texts(&mut reader, album, photos.iter().map(|(photo,)| *photo)).await?;
        drop(reader);
        let judge = move || {
            add_photos(&mut checked, &rule, &texts);
            (checked, rule)
        };
        (checked, rule) = offload(OPERATION, judge).await?;
    }
    Ok(checked)
}

fn is_indexed(text: &DetectedText) -> bool {
    text.index_state == TextIndexState::Indexed
}

fn add_photos(checked: &mut CheckedStartList, rule: &BibRule, photos: &TextsByPhoto) {
    for (photo, known) in photos {
        let before: Vec<DetectedText> = known.iter().map(|known| known.text.clone()).collect();
        for (judgement, before) in judge_photo(rule, &before).into_iter().zip(&before) {
            let mut after = before.clone();
            judgement.apply_to(&mut after);
            checked.indexed_now += u64::from(is_indexed(before));
            checked.indexed_then += u64::from(is_indexed(&after));
            if after == *before {
                continue;
            }
            checked.changed += 1;
            if checked.examples.len() < EXAMPLES {
                checked.examples.push(JudgedText {
                    photo: *photo,
                    before: before.text.clone(),
                    after: is_indexed(&after).then_some(after.text),
                    confidence: after.confidence,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::poll;

    use crate::conformance::{AlbumFixture, text};
    use crate::model::start_list::{EntryQuery, ImportMode, StartListEntry, StartListImport};
    use crate::sql::connection::sqlite::READERS;
    use crate::sql::database::Database;
    use crate::sql::start_lists::SqlStartLists;
    use crate::sql::tests::open_store;
    use crate::traits::StartLists;
    use crate::turns::Turns;

    /// Those that one organization has at a time.
    const READERS_OF_ONE: usize = READERS as usize - 1;

    fn list_of(fixture: &AlbumFixture) -> StartListImport {
        let (mode, imported_by) = (ImportMode::Replace, fixture.key.id);
        let entries = vec![StartListEntry::of("1207".to_owned())];
        StartListImport { mode, entries, imported_by, max_entries: 10 }
    }

    /// The only thread that judges is busy, and one connection is left to the organization: a check that kept it would leave
    /// none to the next call.
    #[test]
    fn a_check_has_no_connection_while_it_judges() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(1)
            .build()
            .unwrap();
        runtime.block_on(async {
            let (_folder, store, file) = open_store().await;
            let fixture = AlbumFixture::create(&store).await;
            fixture.add_ready_photo(Vec::new(), vec![text("4711", 0.97)]).await;
            let lists =
                SqlStartLists::new(Database::Sqlite(file.clone()), Arc::default(), None, Turns::default());
            let mut readers = Vec::new();
            while readers.len() + 1 < READERS_OF_ONE {
                readers.push(file.acquire_reader().await.unwrap());
            }
            let (release, released) = std::sync::mpsc::channel::<()>();
            drop(tokio::task::spawn_blocking(move || released.recv()));
            let mut check = lists.check(fixture.album, list_of(&fixture), 100);
            tokio::select! {
                biased;
                _ = &mut check => panic!("judged on a thread of the runtime"),
                page = lists.list_entries(fixture.album, EntryQuery::default()) => drop(page.unwrap()),
            }
            drop(release);
            let checked = check.await.unwrap();
            assert_eq!((checked.photos, checked.changed), (1, 1));
        });
    }

    #[tokio::test]
    async fn checks_wait_for_their_turn_without_a_connection() {
        let (_folder, store, file) = open_store().await;
        let fixture = AlbumFixture::create(&store).await;
        let lists =
            SqlStartLists::new(Database::Sqlite(file.clone()), Arc::default(), None, Turns::default());
        let turn = lists.checks.take(None).await;
        let mut checks: Vec<_> =
            (0..READERS).map(|_| lists.check(fixture.album, list_of(&fixture), 100)).collect();
        for check in &mut checks {
            assert!(poll!(check).is_pending());
        }
        let mut readers = Vec::new();
        while readers.len() < READERS_OF_ONE {
            readers.push(file.acquire_reader().await.unwrap());
        }
        drop(readers);
        drop(turn);
        for check in checks {
            assert_eq!(check.await.unwrap().photos, 0);
        }
    }
}
