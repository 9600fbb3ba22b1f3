//! Galleries in the database.

use async_trait::async_trait;
use sqlx::FromRow;

use crate::error::{StoreError, StoreErrorKind};
use crate::model::account::TokenDigest;
use crate::model::album::Album;
use crate::model::encoding::{from_micros, now_micros, to_micros};
use crate::model::gallery::{
    Gallery, GalleryChange, NewConsent, NewReport, OpenGallery, ReportKind, ReportLimits, ReportedPhoto,
    StoredReport, VisitorSearch,
};
use crate::model::ids::{AlbumId, ConsentId, PhotoId, ProbeId, ReportId};
use crate::sealing::{MasterSecret, Purpose};
use crate::sql::database::{Database, Transaction};
use crate::sql::gallery_visits::VisitMeter;
use crate::sql::row_types::{AlbumRow, convert_rows, from_json, parse_name, to_json};
use crate::sql::statement::query;
use crate::traits::{Galleries, Result};

const OPERATION: &str = "change a gallery";

/// No gallery has it: versions are microseconds since 1970.
const NO_VERSION: i64 = -1;

const COLUMNS: &str = "select album, enabled, link, settings, expires_at, opened, searches, updated_at from gallery where album = $1";

const FIND: &str = "select g.album as gallery_album, g.enabled, g.link, g.settings, g.expires_at, g.opened, g.searches, g.updated_at as version, \
     a.id, a.organization, a.mode, a.created_by, a.title, a.cover_url, a.tags, a.config, \
     a.watermark_version, a.created_at, a.updated_at \
     from gallery g join album a on a.id = g.album where g.link_digest = $1 and a.closed_at is null";

/// Reads the index by which each is there once.
pub(crate) const COUNT_REPORTS: &str = "select count(*), count(case when visitor = $2 then 1 end) \
     from gallery_report where album = $1 and kind <> 'removal'";

/// Counts the consents to a selfie that were not withdrawn. Every page of a search with it asks.
pub(crate) const COUNT_CONSENTS: &str =
    "select count(*) from gallery_consent where album = $1 and probe = $2 and withdrawn_at is null";

pub(crate) const WITHDRAW_CONSENT: &str = "update gallery_consent set withdrawn_at = coalesce(withdrawn_at, $3) \
     where album = $1 and probe = $2";

#[derive(FromRow)]
struct GalleryRow {
    album: AlbumId,
    enabled: i64,
    link: Vec<u8>,
    settings: String,
    expires_at: Option<i64>,
    opened: i64,
    searches: i64,
    updated_at: i64,
}

#[derive(FromRow)]
struct OpenGalleryRow {
    gallery_album: AlbumId,
    enabled: i64,
    link: Vec<u8>,
    settings: String,
    expires_at: Option<i64>,
    opened: i64,
    searches: i64,
    version: i64,
    #[sqlx(flatten)]
    album: AlbumRow,
}

macro_rules! select_reports {
    ($condition:expr) => {
        concat!("select id, photo, kind, note, created_at, faces from gallery_report where ", $condition)
    };
}

/// A report, or each photo of a request to be removed.
macro_rules! same_reports {
    ($rest:literal) => {
        concat!(
            "album = $1 and (id = $2 or kind = 'removal' and visitor in \
             (select visitor from gallery_report where album = $1 and id = $2 and kind = 'removal'))",
            $rest
        )
    };
}

#[derive(FromRow)]
struct ReportRow {
    id: ReportId,
    photo: PhotoId,
    kind: String,
    note: String,
    created_at: i64,
    faces: Option<String>,
}

impl TryFrom<ReportRow> for StoredReport {
    type Error = StoreError;
    fn try_from(row: ReportRow) -> Result<Self> {
        Ok(Self {
            id: row.id,
            photo: row.photo,
            faces: row.faces.as_deref().map(from_json).transpose()?.unwrap_or_default(),
            kind: parse_name(&ReportKind::ALL, ReportKind::as_str, &row.kind)?,
            note: row.note,
            created_at: from_micros(row.created_at)?,
        })
    }
}

pub(crate) struct SqlGalleries {
    database: Database,
    master: Option<MasterSecret>,
    /// What this process has counted and not written yet.
    visits: VisitMeter,
}

impl SqlGalleries {
    pub(crate) fn new(database: Database, master: Option<MasterSecret>) -> Self {
        Self { database, master, visits: VisitMeter::default() }
    }

    fn master(&self) -> Result<&MasterSecret> {
        let missing = || StoreError::new(StoreErrorKind::Invalid, "there is no master secret");
        self.master.as_ref().ok_or_else(missing)
    }

    fn convert(&self, row: GalleryRow) -> Result<Gallery> {
        let link = self.master()?.open(Purpose::GalleryLink, row.album.0, &row.link)?.secret;
        let corrupt = |_| StoreError::new(StoreErrorKind::Corrupt, "link of a gallery");
        let unwritten = self.visits.of_album(row.album);
        Ok(Gallery {
            album: row.album,
            enabled: row.enabled != 0,
            link: String::from_utf8(link).map_err(corrupt)?,
            settings: from_json(&row.settings)?,
            expires_at: row.expires_at.map(from_micros).transpose()?,
            opened: (row.opened + unwritten.opened).unsigned_abs(),
            searches: (row.searches + unwritten.searches).unsigned_abs(),
            version: row.updated_at,
        })
    }
}

#[async_trait]
impl Galleries for SqlGalleries {
    fn can_seal(&self) -> bool {
        self.master.is_some()
    }

    async fn get(&self, album: AlbumId) -> Result<Option<Gallery>> {
        const OPERATION: &str = "read a gallery";
        let row: Option<GalleryRow> = query(OPERATION, COLUMNS)
            .bind(album)
            .fetch_optional(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        row.map(|row| self.convert(row)).transpose()
    }

    async fn save(&self, change: GalleryChange) -> Result<Gallery> {
        let link = self.master()?.seal(Purpose::GalleryLink, change.album.0, change.link.text.as_bytes())?;
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let write = "insert into gallery (album, enabled, link, link_digest, settings, expires_at, updated_at) \
                     values ($1, $2, $3, $4, $5, $6, $7) on conflict (album) do update set enabled = excluded.enabled, \
                     link = excluded.link, link_digest = excluded.link_digest, settings = excluded.settings, \
                     expires_at = excluded.expires_at, \
                     updated_at = case when excluded.updated_at > gallery.updated_at then excluded.updated_at \
                     else gallery.updated_at + 1 end where gallery.updated_at = $8";
        let written = query(OPERATION, write)
            .bind(change.album)
            .bind(i64::from(change.enabled))
            .bind(link)
            .bind(change.link.digest.to_vec())
            .bind(to_json(&change.settings)?)
            .bind(change.expires_at.map(to_micros))
            .bind(now_micros())
            .bind(change.replaces.unwrap_or(NO_VERSION))
            .execute(&mut transaction)
            .await?;
        if written == 0 {
            return Err(StoreError::new(StoreErrorKind::Conflict, "the gallery has changed meanwhile"));
        }
        let row: GalleryRow =
            query(OPERATION, COLUMNS).bind(change.album).fetch_one(&mut transaction).await?;
        transaction.commit(OPERATION).await?;
        self.convert(row)
    }

    async fn find(&self, link: &TokenDigest) -> Result<Option<OpenGallery>> {
        const OPERATION: &str = "find a gallery";
        let row: Option<OpenGalleryRow> = query(OPERATION, FIND)
            .bind(link.to_vec())
            .fetch_optional(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        let Some(row) = row else { return Ok(None) };
        let gallery = GalleryRow {
            album: row.gallery_album,
            enabled: row.enabled,
            link: row.link,
            settings: row.settings,
            expires_at: row.expires_at,
            opened: row.opened,
            searches: row.searches,
            updated_at: row.version,
        };
        Ok(Some(OpenGallery { gallery: self.convert(gallery)?, album: Album::try_from(row.album)? }))
    }

    fn count_opened(&self, album: AlbumId) {
        self.visits.count_opened(album);
    }

    async fn count_search(&self, search: VisitorSearch) -> Result<bool> {
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let of_network = count_visitor(&mut transaction, &search, &search.visitor.network).await?;
        let of_cookie = count_visitor(&mut transaction, &search, &search.visitor.cookie).await?;
        if of_cookie > i64::from(search.cookie_limit) || of_network > i64::from(search.network_limit) {
            return Ok(false);
        }
        transaction.commit(OPERATION).await?;
        self.visits.count_search(search.album);
        Ok(true)
    }

    async fn flush_visits(&self) -> Result<()> {
        self.visits.flush(&self.database).await
    }

    async fn give_consent(&self, consent: NewConsent) -> Result<ConsentId> {
        let id = ConsentId::generate();
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let insert = "insert into gallery_consent (id, album, text_version, language, probe, given_at) \
                      values ($1, $2, $3, $4, $5, $6)";
        query(OPERATION, insert)
            .bind(id)
            .bind(consent.album)
            .bind(i64::from(consent.text_version))
            .bind(consent.language)
            .bind(consent.probe)
            .bind(now_micros())
            .execute(&mut transaction)
            .await?;
        transaction.commit(OPERATION).await?;
        Ok(id)
    }

    async fn withdraw_consent(&self, album: AlbumId, probe: ProbeId) -> Result<()> {
        let mut transaction = self.database.begin_write(OPERATION).await?;
        query(OPERATION, WITHDRAW_CONSENT)
            .bind(album)
            .bind(probe)
            .bind(now_micros())
            .execute(&mut transaction)
            .await?;
        transaction.commit(OPERATION).await
    }

    async fn has_consent(&self, album: AlbumId, probe: ProbeId) -> Result<bool> {
        const OPERATION: &str = "find a consent";
        let (consents,): (i64,) = query(OPERATION, COUNT_CONSENTS)
            .bind(album)
            .bind(probe)
            .fetch_one(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        Ok(consents > 0)
    }

    async fn report(&self, report: NewReport) -> Result<bool> {
        let mut transaction = self.database.begin_write(OPERATION).await?;
        let insert = "insert into gallery_report (id, album, photo, kind, visitor, note, created_at, faces) \
                      select $1, album, id, $4, $5, $6, $7, $8 from photo where album = $2 and id = $3 \
                      on conflict (album, photo, kind, visitor) do update set \
                      faces = excluded.faces, created_at = excluded.created_at where excluded.kind = 'removal'";
        let mut written = 0;
        for ReportedPhoto { photo, faces } in report.photos {
            let faces = if faces.is_empty() { None } else { Some(to_json(&faces)?) };
            written += query(OPERATION, insert)
                .bind(ReportId::generate())
                .bind(report.album)
                .bind(photo)
                .bind(report.kind.as_str())
                .bind(report.visitor.to_vec())
                .bind(report.note.clone())
                .bind(report.created_at)
                .bind(faces)
                .execute(&mut transaction)
                .await?;
        }
        // What was said before is never refused.
        if let Some(limits) = report.limits
            && written > 0
            && exceeds(&mut transaction, report.album, &report.visitor, limits).await?
        {
            return Ok(false);
        }
        transaction.commit(OPERATION).await?;
        Ok(true)
    }

    async fn list_reports(&self, album: AlbumId, limit: u32) -> Result<Vec<StoredReport>> {
        const OPERATION: &str = "list reports";
        let rows: Vec<ReportRow> =
            query(OPERATION, select_reports!("album = $1 order by created_at desc, id limit $2"))
                .bind(album)
                .bind(i64::from(limit))
                .fetch_all(&mut self.database.acquire_reader(OPERATION).await?)
                .await?;
        convert_rows(rows)
    }

    async fn find_reports(&self, album: AlbumId, report: ReportId) -> Result<Vec<StoredReport>> {
        const OPERATION: &str = "find reports";
        let rows: Vec<ReportRow> = query(OPERATION, select_reports!(same_reports!(" order by photo")))
            .bind(album)
            .bind(report)
            .fetch_all(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        if rows.is_empty() {
            return Err(StoreError::not_found(format!("report {report}")));
        }
        convert_rows(rows)
    }

    async fn dismiss_reports(&self, album: AlbumId, report: ReportId) -> Result<()> {
        const OPERATION: &str = "dismiss reports";
        let mut transaction = self.database.begin_write(OPERATION).await?;
        dismiss(&mut transaction, OPERATION, album, report).await?;
        transaction.commit(OPERATION).await
    }
}

/// Deletes a report; of a request to be removed, those of all its photos.
pub(crate) async fn dismiss(
    transaction: &mut Transaction,
    operation: &'static str,
    album: AlbumId,
    report: ReportId,
) -> Result<()> {
    query(operation, concat!("delete from gallery_report where ", same_reports!("")))
        .bind(album)
        .bind(report)
        .execute(transaction)
        .await
        .map(drop)
}

/// Whether there are more reports than the limits.
async fn exceeds(
    transaction: &mut Transaction,
    album: AlbumId,
    visitor: &[u8; 32],
    limits: ReportLimits,
) -> Result<bool> {
    let (of_album, of_visitor): (i64, i64) =
        query(OPERATION, COUNT_REPORTS).bind(album).bind(visitor.to_vec()).fetch_one(transaction).await?;
    Ok(of_album > i64::from(limits.album) || of_visitor > i64::from(limits.visitor))
}

/// Counts a search of a visitor or a network on a day; returns how many there were.
async fn count_visitor(
    transaction: &mut Transaction,
    search: &VisitorSearch,
    visitor: &[u8; 32],
) -> Result<i64> {
    let count = "insert into gallery_visitor as visit (album, visitor, day, searches) values ($1, $2, $3, 1) \
                 on conflict (album, visitor, day) do update set searches = visit.searches + 1 returning searches";
    let (searches,): (i64,) = query(OPERATION, count)
        .bind(search.album)
        .bind(visitor.to_vec())
        .bind(search.day)
        .fetch_one(transaction)
        .await?;
    Ok(searches)
}
