//! Judges photos again whose album got other rules, without reading them again.
//!
//! The texts are read and judged outside of the transaction that writes: judging 500 photos takes a tenth of a second,
//! in which SQLite would accept no upload. A photo that was processed meanwhile has other rows, and is left as it is.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use sqlx::FromRow;

use crate::bibs::judge::{Judgement, judge_photo};
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::{DetectedText, TextIndexState, UnindexedReason};
use crate::model::process::TaskLease;
use crate::model::start_list::JudgedPhotos;
use crate::sealing::MasterSecret;
use crate::sql::changes::{ChangeKind, record_changes};
use crate::sql::database::{Database, Transaction};
use crate::sql::erasures::guard::empty_erased_texts;
use crate::sql::row_types::{TextRow, index_state_to_str, to_json};
use crate::sql::statement::{ConnectionRef, Statement, query};
use crate::sql::tasks::fence;
use crate::traits::{Judging, PhotoRef, Result};

use super::album_turns::{AlbumTurns, TO_JUDGE, TO_LEARN};
use super::formats;
use super::offload::offload;
use super::rules::{BibRules, RulesCache};
use super::versions::lock_album;

const OPERATION: &str = "judge photos";

/// Photos of one transaction.
const BATCH: i64 = 500;

pub(crate) const UNJUDGED_PHOTOS: &str = "select id, settled_at from photo \
     where album = $1 and state = 'ready' and list_version < $2 order by list_version, id limit $3";

macro_rules! select_texts {
    ($is_one_of:literal) => {
        concat!(
            "select id, photo, text, box_top, box_left, box_width, box_height, confidence, max_confidence, standing, read_as, \
             read_confidence, read_standing, recogniser, lattice from seen_text where album = $1 and photo ",
            $is_one_of
        )
    };
}

pub(crate) const TEXTS_OF_PHOTOS: Statement = Statement::PerDialect {
    sqlite: select_texts!("in (select unhex(value) from json_each($2))"),
    postgres: select_texts!("= any($2)"),
};

/// Notes by which version photos were judged: those that were not processed since they were read. `$3` has an id and a
/// time of each.
const MARK_JUDGED: Statement = Statement::PerDialect {
    sqlite: "update photo set list_version = $2 from (select unhex(value ->> 0) as id, value ->> 1 as settled_at \
             from json_each($3)) as named where photo.album = $1 and photo.id = named.id and state = 'ready' \
             and photo.settled_at = named.settled_at and list_version < $2 returning photo.id",
    postgres: "update photo set list_version = $2 from (select (value ->> 0)::uuid as id, \
               (value ->> 1)::bigint as settled_at from json_array_elements($3::json)) as named \
               where photo.album = $1 and photo.id = named.id and state = 'ready' \
               and photo.settled_at = named.settled_at and list_version < $2 returning photo.id",
};

/// Writes what texts are now: `$1` has of each its row, whether that is something else than what was read, and the
/// text, millionths of confidence and standing. What was read stays beside it, bit by bit.
macro_rules! write_judgements {
    ($named:literal) => {
        concat!(
            "update seen_text set \
             read_as = case named.judged when 1 then coalesce(read_as, seen_text.text) end, \
             read_confidence = case named.judged when 1 then coalesce(read_confidence, seen_text.confidence) end, \
             read_standing = case named.judged when 1 then coalesce(read_standing, seen_text.standing) end, \
             text = case named.judged when 1 then named.text else coalesce(read_as, seen_text.text) end, \
             confidence = case named.judged when 1 then named.millionths / 1000000.0 \
             else coalesce(read_confidence, seen_text.confidence) end, \
             standing = case named.judged when 1 then named.standing \
             else coalesce(read_standing, seen_text.standing) end from ",
            $named,
            " as named where seen_text.id = named.id and seen_text.standing <> 'ERASED'"
        )
    };
}

const WRITE_JUDGEMENTS: Statement = Statement::PerDialect {
    sqlite: write_judgements!(
        "(select value ->> 0 as id, value ->> 1 as judged, value ->> 2 as text, value ->> 3 as millionths, \
         value ->> 4 as standing from json_each($1))"
    ),
    postgres: write_judgements!(
        "(select (value ->> 0)::bigint as id, (value ->> 1)::bigint as judged, value ->> 2 as text, \
         (value ->> 3)::float8 as millionths, value ->> 4 as standing from json_array_elements($1::json))"
    ),
};

pub(crate) struct SqlJudging {
    database: Database,
    rules: Arc<RulesCache>,
    /// By which it recognises bibs that were erased.
    master: Option<MasterSecret>,
    judge_turns: AlbumTurns,
    learn_turns: AlbumTurns,
    /// Whether the last step has judged photos, or failed to: the next one learns a format then, if any is to be learned.
    has_judged: AtomicBool,
}

#[derive(FromRow)]
struct JudgedRow {
    id: i64,
    photo: PhotoId,
    #[sqlx(flatten)]
    text: TextRow,
    recogniser: Option<String>,
    lattice: Option<Vec<u8>>,
}

/// A text with its row.
pub(super) struct KnownText {
    pub(super) row: i64,
    pub(super) text: DetectedText,
}

/// The texts of photos, in the order of detection.
pub(super) type TextsByPhoto = BTreeMap<PhotoId, Vec<KnownText>>;

pub(super) async fn load_texts<'c>(
    on: impl Into<ConnectionRef<'c>>,
    album: AlbumId,
    photos: impl Iterator<Item = PhotoId>,
) -> Result<TextsByPhoto> {
    let photos: Vec<uuid::Uuid> = photos.map(|photo| photo.0).collect();
    let rows: Vec<JudgedRow> =
        query(OPERATION, TEXTS_OF_PHOTOS).bind(album).bind(photos).fetch_all(on).await?;
    let mut texts = TextsByPhoto::new();
    for JudgedRow { id, photo, text, recogniser, lattice } in rows {
        let text = text.with_lattice(recogniser, lattice)?;
        texts.entry(photo).or_default().push(KnownText { row: id, text });
    }
    for known in texts.values_mut() {
        known.sort_by_key(|known| known.row);
    }
    Ok(texts)
}

/// A text that is something else now.
struct Change {
    photo: PhotoId,
    row: i64,
    judgement: Judgement,
}

impl Change {
    fn to_json_row(&self) -> (i64, i64, &str, i64, &'static str) {
        match &self.judgement {
            Judgement::AsRead => (self.row, 0, "", 0, ""),
            Judgement::Otherwise { text, confidence, index_state } => {
                (self.row, 1, text, *confidence, index_state_to_str(*index_state))
            }
        }
    }
}

fn find_changes(rules: &BibRules, photos: &TextsByPhoto) -> Vec<Change> {
    let mut changes = Vec::new();
    for (photo, known) in photos {
        let texts: Vec<DetectedText> = known.iter().map(|known| known.text.clone()).collect();
        for (known, judgement) in known.iter().zip(judge_photo(&rules.rule, &texts)) {
            if !is_erased(&known.text) && !judgement.is_of(&known.text) {
                changes.push(Change { photo: *photo, row: known.row, judgement });
            }
        }
    }
    changes
}

/// What was erased is judged by no rule.
fn is_erased(text: &DetectedText) -> bool {
    text.index_state == TextIndexState::Unindexed(UnindexedReason::Erased)
}

impl SqlJudging {
    pub(crate) fn new(database: Database, rules: Arc<RulesCache>, master: Option<MasterSecret>) -> Self {
        let (judge_turns, learn_turns) = (AlbumTurns::new(TO_JUDGE), AlbumTurns::new(TO_LEARN));
        Self { database, rules, master, judge_turns, learn_turns, has_judged: AtomicBool::new(false) }
    }

    /// Learns the format of the next album; returns whether there is one.
    async fn learn_next(&self, lease: TaskLease) -> Result<bool> {
        let Some(album) = self.learn_turns.next(&self.database, OPERATION).await? else {
            return Ok(false);
        };
        formats::learn_album(&self.database, lease, album, self.master.as_ref()).await?;
        Ok(true)
    }

    /// Judges photos of the next album; `None` if there is no album, or no photo of it is left.
    async fn judge_next(&self, lease: TaskLease) -> Result<Option<JudgedPhotos>> {
        let Some(album) = self.judge_turns.next(&self.database, OPERATION).await? else { return Ok(None) };
        let rules = self.rules.get_current(&self.database, album).await?;
        let mut snapshot = self.database.begin_snapshot(OPERATION).await?;
        let photos: Vec<(PhotoId, Option<i64>)> = query(OPERATION, UNJUDGED_PHOTOS)
            .bind(album)
            .bind(rules.version)
            .bind(BATCH)
            .fetch_all(&mut snapshot)
            .await?;
        if photos.is_empty() {
            drop(snapshot);
            self.end_album(lease, album).await?;
            return Ok(None);
        }
        let texts = load_texts(&mut snapshot, album, photos.iter().map(|(photo, _)| *photo)).await?;
        drop(snapshot);
        let version = rules.version;
        let changes = offload(OPERATION, move || find_changes(&rules, &texts)).await?;
        self.write(lease, album, version, &photos, changes).await.map(Some)
    }

    /// Ends the judging of an album, if no photo of it is left.
    async fn end_album(&self, lease: TaskLease, album: AlbumId) -> Result<()> {
        let mut transaction = self.database.begin_write(OPERATION).await?;
        fence(&mut transaction, OPERATION, lease).await?;
        // No worker leaves photos behind that this transaction does not see.
        let version = lock_album(&mut transaction, OPERATION, album).await?.unwrap_or_default();
        let left: Vec<(PhotoId, Option<i64>)> = query(OPERATION, UNJUDGED_PHOTOS)
            .bind(album)
            .bind(version)
            .bind(1_i64)
            .fetch_all(&mut transaction)
            .await?;
        if left.is_empty() {
            let forget = "delete from album_to_judge where album = $1";
            query(OPERATION, forget).bind(album).execute(&mut transaction).await?;
        }
        transaction.commit(OPERATION).await
    }

    /// Writes the changes of the photos that are as they were read; returns what was done.
    async fn write(
        &self,
        lease: TaskLease,
        album: AlbumId,
        version: i64,
        photos: &[(PhotoId, Option<i64>)],
        changes: Vec<Change>,
    ) -> Result<JudgedPhotos> {
        let mut transaction = self.database.begin_write(OPERATION).await?;
        fence(&mut transaction, OPERATION, lease).await?;
        let keys: Vec<PhotoRef> = photos.iter().map(|(photo, _)| PhotoRef { album, photo: *photo }).collect();
        transaction.queue_writes().lock_photos(&keys).await?;
        let named: Vec<(String, Option<i64>)> =
            photos.iter().map(|(photo, settled_at)| (photo.0.simple().to_string(), *settled_at)).collect();
        let marked: Vec<(PhotoId,)> = query(OPERATION, MARK_JUDGED)
            .bind(album)
            .bind(version)
            .bind(to_json(&named)?)
            .fetch_all(&mut transaction)
            .await?;
        let marked: HashSet<PhotoId> = marked.into_iter().map(|(photo,)| photo).collect();
        let changes: Vec<Change> =
            changes.into_iter().filter(|change| marked.contains(&change.photo)).collect();
        let mut changed: Vec<PhotoId> = changes.iter().map(|change| change.photo).collect();
        changed.dedup();
        write_changes(&mut transaction, album, &changes, &changed, self.master.as_ref()).await?;
        transaction.commit(OPERATION).await?;
        Ok(JudgedPhotos { photos: marked.len() as u64, changed: changed.len() as u64, has_more: true })
    }
}

async fn write_changes(
    transaction: &mut Transaction,
    album: AlbumId,
    changes: &[Change],
    changed: &[PhotoId],
    master: Option<&MasterSecret>,
) -> Result<()> {
    if changes.is_empty() {
        return Ok(());
    }
    let rows: Vec<_> = changes.iter().map(Change::to_json_row).collect();
    query(OPERATION, WRITE_JUDGEMENTS).bind(to_json(&rows)?).execute(&mut *transaction).await?;
    let recorded = record_changes(transaction, album, changed, ChangeKind::Content).await?;
    if recorded.erasures > 0 {
        // What a photo says by the rules of today may be a bib that was erased.
        empty_erased_texts(transaction, OPERATION, album, changed, master).await?;
    }
    Ok(())
}

#[async_trait]
impl Judging for SqlJudging {
    async fn is_due(&self) -> Result<bool> {
        let mut reader = self.database.acquire_reader(OPERATION).await?;
        Ok(self.judge_turns.is_due(&mut reader, OPERATION).await?
            || self.learn_turns.is_due(&mut reader, OPERATION).await?)
    }

    async fn judge(&self, lease: TaskLease) -> Result<JudgedPhotos> {
        let nothing = JudgedPhotos { has_more: true, ..JudgedPhotos::default() };
        // By turns: neither an album of half a million photos nor one that cannot be judged keeps formats from others.
        if self.has_judged.swap(false, Ordering::Relaxed) && self.learn_next(lease).await? {
            return Ok(nothing);
        }
        self.has_judged.store(true, Ordering::Relaxed);
        if let Some(judged) = self.judge_next(lease).await? {
            return Ok(judged);
        }
        self.has_judged.store(false, Ordering::Relaxed);
        self.learn_next(lease).await?;
        Ok(nothing)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::conformance::{AlbumFixture, reading, text};
    use crate::error::StoreErrorKind;
    use crate::model::ids::ProcessId;
    use crate::model::process::Task;
    use crate::model::start_list::{ImportMode, StartListEntry, StartListImport};
    use crate::sql::tests::open_store;

    #[tokio::test]
    async fn an_album_that_cannot_be_judged_keeps_no_format_from_others() {
        let (_folder, store, file) = open_store().await;
        let (broken, other) = (AlbumFixture::create(&store).await, AlbumFixture::create(&store).await);
        let lease = store.tasks.take(Task::Judging, ProcessId::generate(), Duration::from_secs(3600)).await;
        let lease = lease.unwrap().unwrap();
        broken.add_ready_photo(Vec::new(), vec![reading("7207", '1', 0.95)]).await;
        while store.judging.is_due().await.unwrap() {
            store.judging.judge(lease).await.unwrap();
        }
        sqlx::query("update seen_text set lattice = x'ff'").execute(&file.writer).await.unwrap();
        let entries = vec![StartListEntry::of("1207".to_owned())];
        let (mode, imported_by) = (ImportMode::Replace, broken.key.id);
        let list = StartListImport { mode, entries, imported_by, max_entries: 10 };
        store.start_lists.import(broken.album, list).await.unwrap();
        other.add_ready_photo(Vec::new(), vec![text("2001", 0.98)]).await;
        let failed = store.judging.judge(lease).await.unwrap_err();
        assert_eq!(failed.kind, StoreErrorKind::Corrupt);
        store.judging.judge(lease).await.unwrap();
        assert_eq!(store.start_lists.get_format(other.album).await.unwrap().readings, 1);
        assert_eq!(store.judging.judge(lease).await.unwrap_err().kind, StoreErrorKind::Corrupt);
    }
}
