//! What an import would change, by the texts of some photos.

use crate::bibs::judge::{BibRule, judge_photo};
use crate::error::{StoreError, StoreErrorKind};
use crate::model::album::AlbumConfig;
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::{DetectedText, TextIndexState};
use crate::model::start_list::{CheckedStartList, JudgedText, StartListImport};
use crate::sql::database::Database;
use crate::sql::row_types::from_json;
use crate::sql::statement::query;
use crate::traits::Result;

use super::judging::{TextsByPhoto, load_texts};
use super::{Merged, entries, formats};

const OPERATION: &str = "check a start list";

/// Texts that are shown.
const EXAMPLES: usize = 20;

/// Photos whose texts are in memory at once.
const PHOTOS_AT_ONCE: usize = 500;

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
    let merged = Merged::new(entries::load(&mut snapshot, OPERATION, album).await?, &import)?;
    let ready = "select id from photo where album = $1 and state = 'ready' order by id limit $2";
    let photos: Vec<(PhotoId,)> =
        query(OPERATION, ready).bind(album).bind(i64::from(max_photos)).fetch_all(&mut snapshot).await?;
    let learned = formats::load(&mut snapshot, OPERATION, album).await?;
    let mut rule = BibRule::new(&merged.entries, &config, learned);
    let mut checked = CheckedStartList { photos: photos.len() as u64, ..CheckedStartList::default() };
    for photos in photos.chunks(PHOTOS_AT_ONCE) {
        let texts = load_texts(&mut snapshot, album, photos.iter().map(|(photo,)| *photo)).await?;
        let judge = move || {
            add_photos(&mut checked, &rule, &texts);
            (checked, rule)
        };
        let judged = tokio::task::spawn_blocking(judge).await;
        (checked, rule) = judged
            .map_err(|error| StoreError::new(StoreErrorKind::Unavailable, OPERATION).with_source(error))?;
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
