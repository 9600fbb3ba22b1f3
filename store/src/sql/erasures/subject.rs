//! Finds what an erasure is about: the rows of faces, texts and selfies.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::FromRow;
use uuid::Uuid;

use super::guard::TextIdRow;
use crate::model::encoding::floats_from_bytes;
use crate::model::erasure::{ComparedSelfie, ErasureSubject, FacePlace, NewErasure};
use crate::model::ids::{AlbumId, PhotoId, ProbeId};
use crate::model::photo::{BoundingBox, Embedding, PhotoSize};
use crate::search::face_bibs::{BibReading, PhotoReadings};
use crate::sql::database::Transaction;
use crate::sql::row_types::BoxRow;
use crate::sql::start_lists::entries::find_spellings;
use crate::sql::statement::{Statement, query};
use crate::traits::Result;

const FACES_OF_PHOTOS: Statement = Statement::PerDialect {
    sqlite: "select id, photo, box_top, box_left, box_width, box_height, \
             cast(case when embedding is null then 0 else 1 end as bigint) as has_vector from face \
             where album = $1 and photo in (select unhex(value) from json_each($2)) order by photo, id",
    postgres: "select id, photo, box_top, box_left, box_width, box_height, \
               cast(case when embedding is null then 0 else 1 end as bigint) as has_vector from face \
               where album = $1 and photo = any($2) order by photo, id",
};

/// What searches find in photos.
const FOUND_TEXTS: Statement = Statement::PerDialect {
    sqlite: "select id, photo, text, read_as from seen_text where album = $1 and standing in ('INDEXED', 'CANDIDATE') \
             and photo in (select unhex(value) from json_each($2))",
    postgres: "select id, photo, text, read_as from seen_text where album = $1 and standing in ('INDEXED', 'CANDIDATE') \
               and photo = any($2)",
};

const READINGS_OF_PHOTOS: Statement = Statement::PerDialect {
    sqlite: "select photo, box_top, box_left, box_width, box_height, text, confidence, \
             (select width from photo where album = $1 and id = seen_text.photo) as width, \
             (select height from photo where album = $1 and id = seen_text.photo) as height from seen_text \
             where album = $1 and standing = 'INDEXED' and photo in (select unhex(value) from json_each($2))",
    postgres: "select photo, box_top, box_left, box_width, box_height, text, confidence, \
               (select width from photo where album = $1 and id = seen_text.photo) as width, \
               (select height from photo where album = $1 and id = seen_text.photo) as height from seen_text \
               where album = $1 and standing = 'INDEXED' and photo = any($2)",
};

/// Each of the three has an index: texts that searches find, those that none finds, which are erased too, and what the reader
/// said where the rules of the album say otherwise.
macro_rules! texts_of_bib {
    ($is_one_of:literal) => {
        concat!(
            "select id, photo, text, read_as from seen_text where album = $1 and text ",
            $is_one_of,
            " and standing in ('INDEXED', 'CANDIDATE', 'NOT_ON_START_LIST', 'PARTIAL') \
             union select id, photo, text, read_as from seen_text where album = $1 and text ",
            $is_one_of,
            " and standing not in ('INDEXED', 'CANDIDATE', 'NOT_ON_START_LIST', 'PARTIAL') \
             union select id, photo, text, read_as from seen_text where album = $1 and read_as ",
            $is_one_of,
            " and read_as is not null"
        )
    };
}

const TEXTS_OF_BIB: Statement = Statement::PerDialect {
    sqlite: texts_of_bib!("in (select value from json_each($2))"),
    postgres: texts_of_bib!("= any($2)"),
};

#[derive(FromRow)]
struct FaceIdRow {
    id: i64,
    photo: PhotoId,
    #[sqlx(flatten)]
    bounding_box: BoxRow,
    has_vector: i64,
}

#[derive(FromRow)]
struct ReadingOfPhoto {
    photo: PhotoId,
    #[sqlx(flatten)]
    bounding_box: BoxRow,
    text: String,
    confidence: f64,
    width: Option<i64>,
    height: Option<i64>,
}

/// A face with its row.
pub(super) struct KnownFace {
    pub(super) id: i64,
    pub(super) photo: PhotoId,
    pub(super) bounding_box: BoundingBox,
    pub(super) has_vector: bool,
}

/// What an erasure is about.
#[derive(Default)]
pub(super) struct FoundSubject {
    pub(super) faces: Vec<KnownFace>,
    pub(super) texts: Vec<TextIdRow>,
    pub(super) probes: Vec<ProbeId>,
}

impl FoundSubject {
    /// The photos in which it is.
    pub(super) fn photos(&self) -> Vec<PhotoId> {
        let faces = self.faces.iter().map(|face| face.photo);
        let photos: BTreeSet<PhotoId> = faces.chain(self.texts.iter().map(|text| text.photo)).collect();
        photos.into_iter().collect()
    }
}

/// Where an erasure may find what it is about.
#[derive(Default)]
pub(super) struct Candidates {
    /// The bib, and what else the start list takes for it.
    pub(super) spellings: Vec<String>,
    /// The texts that say one of them.
    texts: Vec<TextIdRow>,
    /// The photos, in order.
    pub(super) photos: Vec<PhotoId>,
}

/// Returns where an erasure may find what it is about.
pub(super) async fn find_candidates(
    transaction: &mut Transaction,
    operation: &'static str,
    erasure: &NewErasure,
) -> Result<Candidates> {
    let album = erasure.album;
    match &erasure.subject {
        ErasureSubject::Faces { places, .. } => {
            let photos: BTreeSet<PhotoId> = places.iter().map(|place| place.photo).collect();
            Ok(Candidates { photos: photos.into_iter().collect(), ..Candidates::default() })
        }
        ErasureSubject::Bib { bib, .. } => {
            let spellings = find_spellings(&mut *transaction, operation, album, bib).await?;
            let texts: Vec<TextIdRow> = query(operation, TEXTS_OF_BIB)
                .bind(album)
                .bind(spellings.clone())
                .fetch_all(transaction)
                .await?;
            let photos: BTreeSet<PhotoId> = texts.iter().map(|text| text.photo).collect();
            Ok(Candidates { spellings, texts, photos: photos.into_iter().collect() })
        }
    }
}

/// Returns what an erasure is about.
pub(super) async fn find_subject(
    transaction: &mut Transaction,
    operation: &'static str,
    erasure: &NewErasure,
    candidates: Candidates,
) -> Result<FoundSubject> {
    let (album, photos) = (erasure.album, candidates.photos);
    match &erasure.subject {
        ErasureSubject::Faces { places, selfie, .. } => {
            let known = load_faces(transaction, operation, album, &photos).await?;
            let faces = known.into_iter().filter(|face| is_at_one_of(face, places)).collect();
            let probes = match selfie {
                Some(selfie) => find_probes(transaction, operation, album, selfie).await?,
                None => Vec::new(),
            };
            Ok(FoundSubject { faces, texts: Vec::new(), probes })
        }
        ErasureSubject::Bib { bib, with_faces } => {
            let faces = if *with_faces {
                find_faces_of_bib(transaction, operation, album, &photos, bib).await?
            } else {
                Vec::new()
            };
            Ok(FoundSubject { faces, texts: candidates.texts, probes: Vec::new() })
        }
    }
}

fn is_at_one_of(face: &KnownFace, places: &[FacePlace]) -> bool {
    let is_at =
        |place: &FacePlace| place.photo == face.photo && place.bounding_box.is_same_face(&face.bounding_box);
    places.iter().any(is_at)
}

async fn load_faces(
    transaction: &mut Transaction,
    operation: &'static str,
    album: AlbumId,
    photos: &[PhotoId],
) -> Result<Vec<KnownFace>> {
    let ids: Vec<Uuid> = photos.iter().map(|photo| photo.0).collect();
    let rows: Vec<FaceIdRow> =
        query(operation, FACES_OF_PHOTOS).bind(album).bind(ids).fetch_all(transaction).await?;
    let to_known = |FaceIdRow { id, photo, bounding_box, has_vector }| KnownFace {
        id,
        photo,
        bounding_box: bounding_box.into(),
        has_vector: has_vector != 0,
    };
    Ok(rows.into_iter().map(to_known).collect())
}

/// Returns the faces that wear a bib, as searches see it: see [`PhotoReadings::match_faces`].
async fn find_faces_of_bib(
    transaction: &mut Transaction,
    operation: &'static str,
    album: AlbumId,
    photos: &[PhotoId],
    bib: &str,
) -> Result<Vec<KnownFace>> {
    let worn_as = bib.trim_start_matches('0');
    let faces = load_wearers(transaction, operation, album, photos).await?;
    let wears = |wearer: &Wearer| wearer.bib.as_deref() == Some(worn_as);
    Ok(faces.into_iter().filter(wears).map(|wearer| wearer.face).collect())
}

/// A face with the bib that it wears, without leading zeros.
struct Wearer {
    face: KnownFace,
    bib: Option<String>,
}

/// Returns the faces of photos with the bibs below them, as searches see it: see [`PhotoReadings::match_faces`].
async fn load_wearers(
    transaction: &mut Transaction,
    operation: &'static str,
    album: AlbumId,
    photos: &[PhotoId],
) -> Result<Vec<Wearer>> {
    let readings = load_readings(transaction, operation, album, photos).await?;
    let mut by_photo: BTreeMap<PhotoId, Vec<KnownFace>> = BTreeMap::new();
    for face in load_faces(transaction, operation, album, photos).await? {
        by_photo.entry(face.photo).or_default().push(face);
    }
    let mut wearers = Vec::new();
    for (photo, faces) in by_photo {
        let boxes: Vec<BoundingBox> = faces.iter().map(|face| face.bounding_box).collect();
        let mut bibs: Vec<Option<String>> = vec![None; faces.len()];
        let worn = readings.get(&photo).map(|readings| readings.match_faces(&boxes)).unwrap_or_default();
        for (face, worn) in worn {
            bibs[face] = Some(worn.text.to_owned());
        }
        wearers.extend(faces.into_iter().zip(bibs).map(|(face, bib)| Wearer { face, bib }));
    }
    Ok(wearers)
}

async fn load_readings(
    transaction: &mut Transaction,
    operation: &'static str,
    album: AlbumId,
    photos: &[PhotoId],
) -> Result<BTreeMap<PhotoId, PhotoReadings>> {
    let ids: Vec<Uuid> = photos.iter().map(|photo| photo.0).collect();
    let rows: Vec<ReadingOfPhoto> =
        query(operation, READINGS_OF_PHOTOS).bind(album).bind(ids).fetch_all(transaction).await?;
    let mut readings: BTreeMap<PhotoId, PhotoReadings> = BTreeMap::new();
    for ReadingOfPhoto { photo, bounding_box, text, confidence, width, height } in rows {
        let (Some(Ok(width)), Some(Ok(height))) = (width.map(u32::try_from), height.map(u32::try_from))
        else {
            continue;
        };
        let size = PhotoSize { width, height };
        let of_photo = readings.entry(photo).or_insert_with(|| PhotoReadings::new(size, None));
        of_photo.add(BibReading { text, confidence, bounding_box: bounding_box.into() });
    }
    Ok(readings)
}

/// Returns those of these photos in which somebody else can be found: a face with a vector that is not erased, or a bib that is
/// neither erased nor worn by an erased face.
pub(super) async fn find_shared(
    transaction: &mut Transaction,
    operation: &'static str,
    album: AlbumId,
    found: &FoundSubject,
    photos: &[PhotoId],
) -> Result<BTreeSet<PhotoId>> {
    let erased: BTreeSet<i64> = found.faces.iter().map(|face| face.id).collect();
    let (mut shared, mut worn) = (BTreeSet::new(), BTreeSet::new());
    for Wearer { face, bib } in load_wearers(transaction, operation, album, photos).await? {
        if erased.contains(&face.id) {
            worn.extend(bib.map(|bib| (face.photo, bib)));
        } else if face.has_vector {
            shared.insert(face.photo);
        }
    }
    let ids: Vec<Uuid> = photos.iter().map(|photo| photo.0).collect();
    let texts: Vec<TextIdRow> =
        query(operation, FOUND_TEXTS).bind(album).bind(ids).fetch_all(transaction).await?;
    let erased: BTreeSet<i64> = found.texts.iter().map(|text| text.id).collect();
    for text in texts.iter().filter(|text| !erased.contains(&text.id)) {
        if !text.says(|bib| worn.contains(&(text.photo, bib.trim_start_matches('0').to_owned()))) {
            shared.insert(text.photo);
        }
    }
    Ok(shared)
}

/// Returns how many photos of an album a search at this time could not see: those that are not read yet, and those that
/// were read since. Microseconds, by the database's clock.
pub(super) async fn count_unread(
    transaction: &mut Transaction,
    operation: &'static str,
    album: AlbumId,
    searched_at: i64,
) -> Result<u64> {
    let count = "select (select count(*) from photo where album = $1 and state in ('queued', 'processing')) + \
                 (select count(*) from photo where album = $1 and settled_at >= $2 and state in ('ready', 'failed'))";
    let (unread,): (i64,) =
        query(operation, count).bind(album).bind(searched_at).fetch_one(transaction).await?;
    Ok(unread.unsigned_abs())
}

/// Returns how many selfies of an album could not be compared with this one; all without one.
pub(super) async fn count_other_probes(
    transaction: &mut Transaction,
    operation: &'static str,
    album: AlbumId,
    selfie: Option<&Embedding>,
) -> Result<u64> {
    let count = "select count(*) from probe where album = $1 and ($2 is null or coalesce(model, '') <> $2)";
    let model = selfie.map(|selfie| selfie.model.as_str().to_owned());
    let (others,): (i64,) = query(operation, count).bind(album).bind(model).fetch_one(transaction).await?;
    Ok(others.unsigned_abs())
}

/// Returns the selfies of an album that show the same person as this one.
async fn find_probes(
    transaction: &mut Transaction,
    operation: &'static str,
    album: AlbumId,
    selfie: &ComparedSelfie,
) -> Result<Vec<ProbeId>> {
    let ComparedSelfie { embedding: selfie, min_cosine } = selfie;
    let select = "select id, embedding from probe where album = $1 and model = $2 order by id";
    let rows: Vec<(ProbeId, Vec<u8>)> =
        query(operation, select).bind(album).bind(selfie.model.as_str()).fetch_all(transaction).await?;
    let mut found = Vec::new();
    for (probe, bytes) in rows {
        let cosine: f32 = floats_from_bytes(&bytes)?.zip(&selfie.vector).map(|(a, b)| a * b).sum();
        if cosine >= *min_cosine {
            found.push(probe);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::tests::{explain_plan, open_store};

    /// Else it would read all texts of the album, once while workers wait for the album's row.
    #[tokio::test]
    async fn texts_of_a_bib_are_found_by_the_bib() {
        let (_folder, _store, database) = open_store().await;
        let plan = explain_plan(&database, TEXTS_OF_BIB.sqlite_text()).await;
        for index in [
            "seen_text_found (album=? AND text=?)",
            "seen_text_unfound (album=? AND text=?)",
            "seen_text_read_as (album=? AND read_as=?)",
        ] {
            assert!(plan.contains(index), "{index} is not in the plan:\n{plan}");
        }
    }
}
