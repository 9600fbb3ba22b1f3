//! Requests of `faces/erase`, `people/erase` and `erasures/*`.

use photofinish_store::model::erasure::{ErasureQuery, PhotoFate};
use photofinish_store::model::ids::{AlbumId, ErasureId, ReportId};
use photofinish_store::search::variants::normalise_bib;
use serde_json::{Value, json};

use super::{read_album_id, sample};
use crate::validate::bibs::typed_bib;
use crate::validate::input::{Fields, Input};
use crate::validate::validators::{AnyText, Boolean, Integer, Number, OneOf, Text, formatted, uuid};
use crate::wire::cursor::{decode_id, id_cursor};
use crate::wire::gallery::OneReport;

/// A token of a dry run: when it ends in seconds since 1970, and its signature.
const CONFIRM_PATTERN: &str = "^[0-9]{1,12}\\.[0-9a-f]{64}$";

/// How a request to erase is made.
pub(crate) struct ErasureOptions {
    pub(crate) photos: PhotoFate,
    pub(crate) dry_run: bool,
    pub(crate) confirm: Option<String>,
}

fn fate_name(fate: PhotoFate) -> &'static str {
    match fate {
        PhotoFate::Keep => "keep",
        PhotoFate::Delete => "delete",
    }
}

impl ErasureOptions {
    fn read(fields: &mut Fields<'_>) -> Self {
        let fate = OneOf { choices: &[PhotoFate::Keep, PhotoFate::Delete], to_name: fate_name };
        let photos = fields.optional(
            "photos",
            "`delete` deletes the photos in which nobody else can be found; `keep`, the default, keeps all.",
            fate,
        );
        let dry_run =
            fields.optional_or("dryRun", "Says what would be erased, and erases nothing.", false, Boolean);
        let description =
            "The `confirm` of a dry run of the same request within the last 15 minutes. 412 without it.";
        let confirm = fields.optional("confirm", description, confirmation());
        Self { photos: photos.unwrap_or(PhotoFate::Keep), dry_run, confirm }
    }
}

fn confirmation() -> Text {
    formatted(80, CONFIRM_PATTERN, |text| {
        let is_token = text.split_once('.').is_some_and(|(until, signature)| {
            (1..=12).contains(&until.len())
                && until.bytes().all(|byte| byte.is_ascii_digit())
                && signature.len() == 64
                && signature.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        });
        if is_token { Ok(()) } else { Err("must be the `confirm` of a dry run".to_owned()) }
    })
}

/// Body of `faces/erase`.
pub(crate) struct EraseFaces {
    pub(crate) album: AlbumId,
    pub(crate) image: String,
    pub(crate) min_confidence: Option<f64>,
    pub(crate) options: ErasureOptions,
}

impl Input for EraseFaces {
    const NAME: &'static str = "EraseFaces";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let album = read_album_id(fields);
        let image = fields.required("imageId", "The `imageId` of a selfie of the person.", AnyText);
        let description = "Faces of this confidence or more, in place of the album's `confidenceThreshold`.";
        let min_confidence = fields.optional("minConfidence", description, Number { min: 0.0, max: 100.0 });
        let options = ErasureOptions::read(fields);
        Some(Self { album: album?, image: image?, min_confidence, options })
    }

    fn example() -> Value {
        json!({ "albumId": sample::ALBUM, "imageId": sample::PROBE, "dryRun": true })
    }
}

/// Body of `albums/gallery/reports/erase`.
pub(crate) struct EraseReported {
    pub(crate) album: AlbumId,
    pub(crate) report: ReportId,
    pub(crate) options: ErasureOptions,
}

impl Input for EraseReported {
    const NAME: &'static str = "EraseReported";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let named = OneReport::read(fields);
        let options = ErasureOptions::read(fields);
        let OneReport { album, report } = named?;
        Some(Self { album, report, options })
    }

    fn example() -> Value {
        json!({ "albumId": sample::ALBUM, "reportId": sample::REPORT, "dryRun": true })
    }
}

/// Body of `people/erase`.
pub(crate) struct ErasePerson {
    pub(crate) album: AlbumId,
    /// Normalised.
    pub(crate) bib: String,
    pub(crate) with_faces: bool,
    pub(crate) options: ErasureOptions,
}

impl Input for ErasePerson {
    const NAME: &'static str = "ErasePerson";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let album = read_album_id(fields);
        let description = "The bib: one letter or digit at least. Case, spaces and punctuation are ignored.";
        let bib = fields.required("bib", description, typed_bib(100));
        let description = "Whether the faces that wear the bib are erased too.";
        let with_faces = fields.optional_or("faces", description, true, Boolean);
        let options = ErasureOptions::read(fields);
        Some(Self { album: album?, bib: normalise_bib(&bib?), with_faces, options })
    }

    fn example() -> Value {
        json!({ "albumId": sample::ALBUM, "bib": "1207", "dryRun": true })
    }
}

/// Body of `erasures/list`.
pub(crate) struct ListErasures {
    pub(crate) query: ErasureQuery,
}

impl Input for ListErasures {
    const NAME: &'static str = "ListErasures";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let album = fields.optional("albumId", "Only erasures in this album.", uuid());
        let limit = fields.optional_or("limit", "Erasures per page.", 50, Integer { min: 1, max: 200 });
        let cursor = fields.optional("cursor", "`nextCursor` of the previous page.", id_cursor());
        let query = ErasureQuery {
            before: cursor.and_then(|text| decode_id(&text)).map(ErasureId),
            album: album.map(AlbumId),
            limit,
        };
        Some(Self { query })
    }

    fn example() -> Value {
        json!({ "albumId": sample::ALBUM })
    }
}

/// Body of `erasures/get` and `erasures/verify`.
pub(crate) struct OneErasure {
    pub(crate) id: ErasureId,
}

impl Input for OneErasure {
    const NAME: &'static str = "OneErasure";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let id = fields.required("receiptId", "The `receiptId` of the erasure.", uuid());
        Some(Self { id: ErasureId(id?) })
    }

    fn example() -> Value {
        json!({ "receiptId": sample::ERASURE })
    }
}
