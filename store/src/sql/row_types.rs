//! Database rows, the same from SQLite and Postgres, and their conversion to the types of [`crate::model`]. Enums are
//! stored by name, lists and configurations as JSON; times and vectors as [`crate::model::encoding`] says. A row that
//! does not fit is an error of kind `Corrupt`, never a guess.

use photofinish_kernels::lattice::Lattice;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::FromRow;

use crate::error::{StoreError, StoreErrorKind};
use crate::model::album::{Album, Tenant};
use crate::model::encoding::{floats_from_bytes, from_micros};
use crate::model::ids::{AlbumId, KeyId, OrganizationId, PhotoId, ProbeId};
use crate::model::key::{Key, KeyMode, Scope};
use crate::model::photo::{
    BoundingBox, DetectedFace, DetectedText, Embedding, FailureReason, Photo, PhotoSize, PhotoState,
    ReadText, TextIndexState, TextLattice, UnindexedReason,
};
use crate::traits::{Probe, ProbeOutcome, ProbeRefusal, Result};

pub(crate) fn to_json<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| corrupt_error("value to store").with_source(error))
}

pub(crate) fn from_json<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| corrupt_error("json in a row").with_source(error))
}

fn corrupt_error(context: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, context)
}

/// The value in `all` whose stored name is `text`.
pub(crate) fn parse_name<T: Copy>(all: &[T], name: fn(T) -> &'static str, text: &str) -> Result<T> {
    let found = all.iter().copied().find(|value| name(*value) == text);
    found.ok_or_else(|| corrupt_error(&format!("unknown name `{text}` in a row")))
}

pub(crate) fn parse_key_mode(text: &str) -> Result<KeyMode> {
    parse_name(&[KeyMode::Test, KeyMode::Live], KeyMode::as_str, text)
}

#[derive(FromRow)]
pub(crate) struct KeyRow {
    id: KeyId,
    organization: OrganizationId,
    organization_name: String,
    mode: String,
    label: String,
    hint: String,
    scopes: String,
    limits: Option<String>,
    created_at: i64,
    last_used_at: Option<i64>,
    expires_at: Option<i64>,
    revoked_at: Option<i64>,
}

impl TryFrom<KeyRow> for Key {
    type Error = StoreError;
    fn try_from(row: KeyRow) -> Result<Self> {
        Ok(Self {
            id: row.id,
            tenant: Tenant { organization: row.organization, mode: parse_key_mode(&row.mode)? },
            organization_name: row.organization_name,
            label: row.label,
            hint: row.hint,
            scopes: from_json::<Vec<Scope>>(&row.scopes)?,
            limits: row.limits.as_deref().map(from_json).transpose()?.unwrap_or_default(),
            created_at: from_micros(row.created_at)?,
            last_used_at: row.last_used_at.map(from_micros).transpose()?,
            expires_at: row.expires_at.map(from_micros).transpose()?,
            revoked_at: row.revoked_at.map(from_micros).transpose()?,
        })
    }
}

#[derive(FromRow)]
pub(crate) struct AlbumRow {
    id: AlbumId,
    organization: OrganizationId,
    mode: String,
    created_by: KeyId,
    title: String,
    cover_url: Option<String>,
    tags: String,
    config: String,
    watermark_version: i64,
    created_at: i64,
    updated_at: i64,
}

impl TryFrom<AlbumRow> for Album {
    type Error = StoreError;
    fn try_from(row: AlbumRow) -> Result<Self> {
        Ok(Self {
            id: row.id,
            tenant: Tenant { organization: row.organization, mode: parse_key_mode(&row.mode)? },
            created_by: row.created_by,
            title: row.title,
            cover_url: row.cover_url,
            tags: from_json(&row.tags)?,
            config: from_json(&row.config)?,
            watermark_version: row.watermark_version,
            created_at: from_micros(row.created_at)?,
            updated_at: from_micros(row.updated_at)?,
        })
    }
}

#[derive(FromRow)]
pub(crate) struct PhotoRow {
    album: AlbumId,
    id: PhotoId,
    filename: String,
    content_type: String,
    state: String,
    failure: Option<String>,
    width: Option<i64>,
    height: Option<i64>,
    taken_at: Option<i64>,
    camera: Option<String>,
    skipped_runners: i64,
    marked_version: i64,
    created_at: i64,
    updated_at: i64,
}

impl TryFrom<PhotoRow> for Photo {
    type Error = StoreError;
    fn try_from(row: PhotoRow) -> Result<Self> {
        let pixels =
            |side: i64| u32::try_from(side).map_err(|cause| corrupt_error("photo size").with_source(cause));
        let size = match (row.width, row.height) {
            (Some(width), Some(height)) => Some(PhotoSize { width: pixels(width)?, height: pixels(height)? }),
            _ => None,
        };
        let failure = row.failure.as_deref();
        Ok(Self {
            id: row.id,
            album: row.album,
            filename: row.filename,
            content_type: row.content_type,
            state: parse_photo_state(&row.state)?,
            failure: failure
                .map(|text| parse_name(&FailureReason::ALL, FailureReason::as_str, text))
                .transpose()?,
            size,
            taken_at: row.taken_at.map(from_micros).transpose()?,
            camera: row.camera,
            skipped_runners: u32::try_from(row.skipped_runners)
                .map_err(|cause| corrupt_error("skipped runners").with_source(cause))?,
            is_marked: row.marked_version > 0,
            created_at: from_micros(row.created_at)?,
            updated_at: from_micros(row.updated_at)?,
        })
    }
}

pub(crate) fn parse_photo_state(text: &str) -> Result<PhotoState> {
    parse_name(&PhotoState::ALL, PhotoState::as_str, text)
}

#[derive(FromRow)]
pub(crate) struct BoxRow {
    box_top: f64,
    box_left: f64,
    box_width: f64,
    box_height: f64,
}

impl From<BoxRow> for BoundingBox {
    fn from(row: BoxRow) -> Self {
        Self { top: row.box_top, left: row.box_left, width: row.box_width, height: row.box_height }
    }
}

#[derive(FromRow)]
pub(crate) struct FaceRow {
    #[sqlx(flatten)]
    bounding_box: BoxRow,
    confidence: f64,
    unindexed: Option<String>,
    model: Option<String>,
    embedding: Option<Vec<u8>>,
}

impl TryFrom<FaceRow> for DetectedFace {
    type Error = StoreError;
    fn try_from(row: FaceRow) -> Result<Self> {
        Ok(Self {
            bounding_box: row.bounding_box.into(),
            confidence: row.confidence,
            unindexed: row.unindexed.as_deref().map(parse_unindexed_reason).transpose()?,
            embedding: embedding_from_columns(row.model, row.embedding)?,
        })
    }
}

fn parse_unindexed_reason(text: &str) -> Result<UnindexedReason> {
    parse_name(&UnindexedReason::ALL, UnindexedReason::as_str, text)
}

fn embedding_from_columns(model: Option<String>, bytes: Option<Vec<u8>>) -> Result<Option<Embedding>> {
    match (model, bytes) {
        (Some(model), Some(bytes)) => {
            Ok(Some(Embedding { model, vector: floats_from_bytes(&bytes)?.collect() }))
        }
        (None, None) => Ok(None),
        _ => Err(corrupt_error("embedding without its model")),
    }
}

const INDEXED: &str = "INDEXED";
const CANDIDATE: &str = "CANDIDATE";

/// The stored name of an index state.
pub(crate) fn index_state_to_str(standing: TextIndexState) -> &'static str {
    match standing {
        TextIndexState::Indexed => INDEXED,
        TextIndexState::Candidate => CANDIDATE,
        TextIndexState::Unindexed(reason) => reason.as_str(),
    }
}

fn parse_index_state(standing: &str) -> Result<TextIndexState> {
    Ok(match standing {
        INDEXED => TextIndexState::Indexed,
        CANDIDATE => TextIndexState::Candidate,
        reason => TextIndexState::Unindexed(parse_unindexed_reason(reason)?),
    })
}

#[derive(FromRow)]
pub(crate) struct TextRow {
    text: String,
    #[sqlx(flatten)]
    bounding_box: BoxRow,
    confidence: f64,
    max_confidence: f64,
    standing: String,
    read_as: Option<String>,
    read_confidence: Option<f64>,
    read_standing: Option<String>,
}

impl TextRow {
    /// The text with its lattice, which most readers of texts leave in the database.
    pub(crate) fn with_lattice(
        self,
        recogniser: Option<String>,
        lattice: Option<Vec<u8>>,
    ) -> Result<DetectedText> {
        let decode = |(recogniser, bytes)| {
            let lattice =
                Lattice::decode(bytes).map_err(|cause| corrupt_error("lattice").with_source(cause))?;
            Ok(TextLattice { recogniser, lattice })
        };
        Ok(DetectedText { lattice: recogniser.zip(lattice).map(decode).transpose()?, ..self.try_into()? })
    }
}

impl TryFrom<TextRow> for DetectedText {
    type Error = StoreError;
    fn try_from(row: TextRow) -> Result<Self> {
        let read = match (row.read_as, row.read_confidence, row.read_standing) {
            (Some(text), Some(confidence), Some(standing)) => {
                Some(ReadText { text, confidence, index_state: parse_index_state(&standing)? })
            }
            _ => None,
        };
        Ok(Self {
            text: row.text,
            bounding_box: row.bounding_box.into(),
            confidence: row.confidence,
            max_confidence: row.max_confidence,
            index_state: parse_index_state(&row.standing)?,
            read,
            lattice: None,
        })
    }
}

#[derive(FromRow)]
pub(crate) struct ProbeRow {
    id: ProbeId,
    album: AlbumId,
    organization: OrganizationId,
    expires_at: i64,
    model: Option<String>,
    embedding: Option<Vec<u8>>,
    refusal: Option<String>,
    charged_at: Option<i64>,
}

impl TryFrom<ProbeRow> for Probe {
    type Error = StoreError;
    fn try_from(row: ProbeRow) -> Result<Self> {
        Ok(Self {
            id: row.id,
            album: row.album,
            organization: row.organization,
            expires_at: from_micros(row.expires_at)?,
            is_charged: row.charged_at.is_some(),
            outcome: match embedding_from_columns(row.model, row.embedding)? {
                Some(embedding) => Some(ProbeOutcome::Embedded(embedding)),
                None => row.refusal.as_deref().map(parse_refusal).transpose()?.map(ProbeOutcome::Refused),
            },
        })
    }
}

fn parse_refusal(text: &str) -> Result<ProbeRefusal> {
    parse_name(&ProbeRefusal::ALL, ProbeRefusal::as_str, text)
}

/// Converts every row; fails at the first that does not fit.
pub(crate) fn convert_rows<R, T: TryFrom<R, Error = StoreError>>(rows: Vec<R>) -> Result<Vec<T>> {
    rows.into_iter().map(T::try_from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_corrupt() {
        assert_eq!(parse_photo_state("sleeping").unwrap_err().kind, StoreErrorKind::Corrupt);
    }
}
