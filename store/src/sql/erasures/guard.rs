//! Keeps what was erased from coming back: asked by whoever writes detections.
//!
//! Most albums have no erasure, and pay for one look at the album's row, which their transaction locks anyway.

use std::collections::{HashMap, HashSet};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use sqlx::FromRow;
use uuid::Uuid;

use crate::error::{StoreError, StoreErrorKind};
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::photo::{BoundingBox, DetectedFace, DetectedText, TextIndexState, UnindexedReason};
use crate::sealing::{MasterSecret, Purpose};
use crate::sql::database::Transaction;
use crate::sql::row_types::BoxRow;
use crate::sql::statement::{ConnectionRef, Statement, query};
use crate::traits::{PhotoResults, Result};

const PLACES: Statement = Statement::PerDialect {
    sqlite: "select photo, box_top, box_left, box_width, box_height from erased_place \
             where album = $1 and photo in (select unhex(value) from json_each($2))",
    postgres: "select photo, box_top, box_left, box_width, box_height from erased_place \
               where album = $1 and photo = any($2)",
};

const ALBUMS_WITH_ERASURES: Statement = Statement::PerDialect {
    sqlite: "select id, erasures, faces_erased_at from album \
             where id in (select unhex(value) from json_each($1)) and erasures > 0",
    postgres: "select id, erasures, faces_erased_at from album where id = any($1) and erasures > 0",
};

const EMPTY_TEXTS: Statement = Statement::PerDialect {
    sqlite: "update seen_text set text = '', standing = 'ERASED', lattice = null, recogniser = null, read_as = null, \
             read_confidence = null, read_standing = null where id in (select value from json_each($1))",
    postgres: "update seen_text set text = '', standing = 'ERASED', lattice = null, recogniser = null, read_as = null, \
               read_confidence = null, read_standing = null where id = any($1)",
};

/// All vectors of these photos, if all faces of their album were erased.
const FORGET_VECTORS: Statement = Statement::PerDialect {
    sqlite: "update face set unindexed = 'ERASED', model = null, embedding = null where album = $1 and embedding is not null \
             and photo in (select unhex(value) from json_each($2)) \
             and exists (select 1 from album where id = $1 and faces_erased_at is not null)",
    postgres: "update face set unindexed = 'ERASED', model = null, embedding = null where album = $1 and embedding is not null \
               and photo = any($2) and exists (select 1 from album where id = $1 and faces_erased_at is not null)",
};

const TEXTS_OF_PHOTOS: Statement = Statement::PerDialect {
    sqlite: "select id, photo, text, read_as from seen_text \
             where album = $1 and standing <> 'ERASED' and photo in (select unhex(value) from json_each($2))",
    postgres: "select id, photo, text, read_as from seen_text \
               where album = $1 and standing <> 'ERASED' and photo = any($2)",
};

#[derive(FromRow)]
struct PlaceRow {
    photo: PhotoId,
    #[sqlx(flatten)]
    bounding_box: BoxRow,
}

/// A text with its row.
#[derive(FromRow)]
pub(super) struct TextIdRow {
    pub(super) id: i64,
    pub(super) photo: PhotoId,
    text: String,
    read_as: Option<String>,
}

impl TextIdRow {
    /// What it says, and what it said to the reader.
    pub(super) fn says(&self, is_erased: impl Fn(&str) -> bool) -> bool {
        is_erased(&self.text) || self.read_as.as_deref().is_some_and(is_erased)
    }
}

/// Returns the erased places of photos of an album.
pub(crate) async fn load_places<'c>(
    on: impl Into<ConnectionRef<'c>>,
    operation: &'static str,
    album: AlbumId,
    photos: impl Iterator<Item = PhotoId>,
) -> Result<HashMap<PhotoId, Vec<BoundingBox>>> {
    let photos: Vec<Uuid> = photos.map(|photo| photo.0).collect();
    let rows: Vec<PlaceRow> = query(operation, PLACES).bind(album).bind(photos).fetch_all(on).await?;
    let mut places: HashMap<PhotoId, Vec<BoundingBox>> = HashMap::new();
    for PlaceRow { photo, bounding_box } in rows {
        places.entry(photo).or_default().push(bounding_box.into());
    }
    Ok(places)
}

/// Takes the vectors of faces at places that were erased.
fn forget_faces(faces: &mut [DetectedFace], is_erased: impl Fn(&BoundingBox) -> bool) {
    for face in faces {
        if face.embedding.is_some() && is_erased(&face.bounding_box) {
            (face.embedding, face.unindexed) = (None, Some(UnindexedReason::Erased));
        }
    }
}

/// The erased bibs of an album, as digests.
#[derive(Clone)]
pub(crate) struct ErasedBibs {
    secret: Vec<u8>,
    digests: HashSet<Vec<u8>>,
}

impl ErasedBibs {
    /// Returns whether this is one of them.
    pub(crate) fn contains(&self, text: &str) -> bool {
        !text.is_empty() && self.digests.contains(&digest_bib(&self.secret, text))
    }

    /// Empties a text that says one of them.
    fn forget_text(&self, text: &mut DetectedText) {
        let read = text.as_read();
        if self.contains(&text.text) || self.contains(&read.text) {
            text.text.clear();
            text.index_state = TextIndexState::Unindexed(UnindexedReason::Erased);
            (text.read, text.lattice) = (None, None);
        }
    }
}

/// Returns the erased bibs of an album; `None` if there are none.
///
/// # Errors
/// `Invalid` without the master secret that sealed their secret: nothing may be written then.
pub(in crate::sql) async fn load_bibs(
    transaction: &mut Transaction,
    operation: &'static str,
    album: AlbumId,
    master: Option<&MasterSecret>,
) -> Result<Option<ErasedBibs>> {
    let select = "select digest from erased_bib where album = $1";
    let digests: Vec<(Vec<u8>,)> = query(operation, select).bind(album).fetch_all(&mut *transaction).await?;
    if digests.is_empty() {
        return Ok(None);
    }
    let secret = load_secret(transaction, operation, album, master).await?;
    let secret = secret
        .ok_or_else(|| StoreError::new(StoreErrorKind::Corrupt, "digests of bibs without their secret"))?;
    Ok(Some(ErasedBibs { secret, digests: digests.into_iter().map(|(digest,)| digest).collect() }))
}

/// Returns the secret of an album's digests; `None` if no bib of it was erased yet.
pub(super) async fn load_secret(
    transaction: &mut Transaction,
    operation: &'static str,
    album: AlbumId,
    master: Option<&MasterSecret>,
) -> Result<Option<Vec<u8>>> {
    let sealed: Option<(Vec<u8>,)> =
        query(operation, "select secret from erased_bib_secret where album = $1")
            .bind(album)
            .fetch_optional(transaction)
            .await?;
    let Some((sealed,)) = sealed else { return Ok(None) };
    let missing = || StoreError::new(StoreErrorKind::Invalid, "there is no master secret");
    let opened = master.ok_or_else(missing)?.open(Purpose::ErasedBib, album.0, &sealed)?;
    Ok(Some(opened.secret))
}

/// Returns the digest of a bib: HMAC-SHA256.
pub(super) fn digest_bib(secret: &[u8], bib: &str) -> Vec<u8> {
    let mut hmac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of every length");
    hmac.update(bib.as_bytes());
    hmac.finalize().into_bytes().to_vec()
}

/// Takes out of results what was erased of their albums. The transaction holds the locks of the photos. Returns how many
/// erasures each album had by then, if any.
pub(in crate::sql) async fn leave_out_erased(
    transaction: &mut Transaction,
    operation: &'static str,
    photos: &mut [&mut PhotoResults],
    master: Option<&MasterSecret>,
) -> Result<HashMap<AlbumId, i64>> {
    let albums: HashSet<Uuid> = photos.iter().map(|results| results.lease.album.0).collect();
    let albums: Vec<Uuid> = albums.into_iter().collect();
    let rows: Vec<(AlbumId, i64, Option<i64>)> =
        query(operation, ALBUMS_WITH_ERASURES).bind(albums).fetch_all(&mut *transaction).await?;
    for (album, _, faces_erased_at) in &rows {
        let of_album = photos.iter().filter(|results| results.lease.album == *album);
        let ids = of_album.map(|results| results.lease.photo);
        let places = load_places(&mut *transaction, operation, *album, ids).await?;
        let bibs = load_bibs(transaction, operation, *album, master).await?;
        for results in photos.iter_mut().filter(|results| results.lease.album == *album) {
            if faces_erased_at.is_some() {
                forget_faces(&mut results.faces, |_| true);
            } else if let Some(places) = places.get(&results.lease.photo) {
                forget_faces(&mut results.faces, |face| places.iter().any(|place| place.is_same_face(face)));
            }
            if let Some(bibs) = &bibs {
                results.texts.iter_mut().for_each(|text| bibs.forget_text(text));
            }
        }
    }
    Ok(rows.into_iter().map(|(album, erasures, _)| (album, erasures)).collect())
}

/// Takes the vectors of photos whose album has lost all its faces. The transaction holds the locks of the photos and of the album:
/// an erasure of all faces of an album locks no photo that had none yet.
pub(in crate::sql) async fn forget_vectors(
    transaction: &mut Transaction,
    operation: &'static str,
    album: AlbumId,
    photos: &[PhotoId],
) -> Result<()> {
    let ids: Vec<Uuid> = photos.iter().map(|photo| photo.0).collect();
    query(operation, FORGET_VECTORS).bind(album).bind(ids).execute(transaction).await.map(drop)
}

/// Empties texts of photos that say an erased bib of their album. The transaction holds the locks of the photos and of the
/// album.
pub(in crate::sql) async fn empty_erased_texts(
    transaction: &mut Transaction,
    operation: &'static str,
    album: AlbumId,
    photos: &[PhotoId],
    master: Option<&MasterSecret>,
) -> Result<()> {
    let Some(bibs) = load_bibs(transaction, operation, album, master).await? else { return Ok(()) };
    let ids: Vec<Uuid> = photos.iter().map(|photo| photo.0).collect();
    let rows: Vec<TextIdRow> =
        query(operation, TEXTS_OF_PHOTOS).bind(album).bind(ids).fetch_all(&mut *transaction).await?;
    let erased: Vec<TextIdRow> =
        rows.into_iter().filter(|row| row.says(|text| bibs.contains(text))).collect();
    empty_texts(transaction, operation, &erased).await
}

/// Empties texts.
pub(super) async fn empty_texts(
    transaction: &mut Transaction,
    operation: &'static str,
    texts: &[TextIdRow],
) -> Result<()> {
    if texts.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = texts.iter().map(|row| row.id).collect();
    query(operation, EMPTY_TEXTS).bind(ids).execute(transaction).await.map(drop)
}
