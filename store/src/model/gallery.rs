//! Galleries: the public pages of albums.

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use crate::model::account::TokenDigest;
use crate::model::album::Album;
use crate::model::ids::{AlbumId, PhotoId, ProbeId, ReportId};
use crate::model::photo::BoundingBox;

/// What visitors may download.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Downloads {
    /// Nothing.
    None,
    /// The preview.
    #[default]
    Preview,
    /// The photo as it was uploaded.
    Original,
}

impl Downloads {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::None, Self::Preview, Self::Original];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Preview => "preview",
            Self::Original => "original",
        }
    }
}

/// What happens when a visitor asks to be removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Removal {
    /// The organizer is told which photos it is about, and decides. Whoever has a photo of somebody else can use it as a
    /// selfie, so nothing is erased on a visitor's word.
    #[default]
    Request,
    /// The faces are erased at once.
    Immediate,
}

impl Removal {
    /// Every choice.
    pub const ALL: [Self; 2] = [Self::Request, Self::Immediate];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Immediate => "immediate",
        }
    }
}

/// What visitors may do in a gallery, and what it tells them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GallerySettings {
    /// Search by bib.
    pub bib_search: bool,
    /// Search by selfie.
    pub selfie_search: bool,
    /// See all photos.
    pub browse: bool,
    /// Download.
    pub downloads: Downloads,
    /// See pictures with the album's watermark alone, if it has one.
    pub watermark: bool,
    /// What happens when they ask to be removed.
    pub removal: Removal,
    /// Searches of one visitor on a day.
    pub searches_per_visitor: u32,
    /// Whom visitors write to.
    pub contact: Option<String>,
    /// Where the organizer says what happens with personal data.
    pub privacy_url: Option<String>,
    /// Words of the organizer above the photos.
    pub intro: Option<String>,
}

/// Searches of one visitor on a day, where nobody says otherwise.
const SEARCHES_PER_VISITOR: u32 = 30;

impl Default for GallerySettings {
    fn default() -> Self {
        Self {
            bib_search: true,
            selfie_search: false,
            browse: false,
            downloads: Downloads::default(),
            watermark: true,
            removal: Removal::default(),
            searches_per_visitor: SEARCHES_PER_VISITOR,
            contact: None,
            privacy_url: None,
            intro: None,
        }
    }
}

/// A gallery.
#[derive(Clone, Debug, PartialEq)]
pub struct Gallery {
    /// The album.
    pub album: AlbumId,
    /// Whether visitors see it.
    pub enabled: bool,
    /// The secret part of its address.
    pub link: String,
    /// What visitors may do.
    pub settings: GallerySettings,
    /// From when on it says that it is over.
    pub expires_at: Option<OffsetDateTime>,
    /// How often it was opened.
    pub opened: u64,
    /// How often it was searched.
    pub searches: u64,
    /// Which change made it what it is; another one has another number.
    pub version: i64,
}

/// A gallery to write in place of the one before.
#[derive(Clone, Debug)]
pub struct GalleryChange {
    /// The album.
    pub album: AlbumId,
    /// Whether visitors see it.
    pub enabled: bool,
    /// The secret part of its address, and its digest.
    pub link: GalleryLink,
    /// What visitors may do.
    pub settings: GallerySettings,
    /// From when on it says that it is over.
    pub expires_at: Option<OffsetDateTime>,
    /// The version that it takes the place of; `None` for the album's first gallery.
    pub replaces: Option<i64>,
}

/// The secret part of a gallery's address.
#[derive(Clone, Debug)]
pub struct GalleryLink {
    /// As it is written.
    pub text: String,
    /// SHA-256 of the text.
    pub digest: TokenDigest,
}

/// A gallery as a visitor finds it.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenGallery {
    /// The gallery.
    pub gallery: Gallery,
    /// Its album.
    pub album: Album,
}

impl OpenGallery {
    /// Whether visitors see marked pictures alone.
    pub fn shows_marked(&self) -> bool {
        self.gallery.settings.watermark && self.album.watermark_version > 0
    }
}

/// Whoever searches: HMACs of the cookie and of the network.
#[derive(Clone, Copy, Debug)]
pub struct Visitor {
    /// Of the cookie.
    pub cookie: [u8; 32],
    /// Of the network.
    pub network: [u8; 32],
}

/// A search of a visitor.
#[derive(Clone, Copy, Debug)]
pub struct VisitorSearch {
    /// Of which gallery.
    pub album: AlbumId,
    /// Whose.
    pub visitor: Visitor,
    /// On which day, counted from 1970.
    pub day: i64,
    /// How many a cookie may make on a day.
    pub cookie_limit: u32,
    /// How many a network may make on a day.
    pub network_limit: u32,
}

/// A consent to compare a selfie.
#[derive(Clone, Debug)]
pub struct NewConsent {
    /// In which gallery.
    pub album: AlbumId,
    /// The version of the words.
    pub text_version: u32,
    /// Their language.
    pub language: String,
    /// The selfie.
    pub probe: ProbeId,
}

/// What a visitor says of a photo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportKind {
    /// The visitor is not in it.
    NotMe,
    /// It should not be there.
    Report,
    /// The visitor is in it and asks to be removed.
    Removal,
}

impl ReportKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::NotMe, Self::Report, Self::Removal];

    /// Those that a visitor says of one photo. A removal is said of all that a selfie finds.
    pub const OF_PHOTO: [Self; 2] = [Self::NotMe, Self::Report];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotMe => "not_me",
            Self::Report => "report",
            Self::Removal => "removal",
        }
    }
}

/// A photo of a report.
#[derive(Clone, Debug)]
pub struct ReportedPhoto {
    /// The photo.
    pub photo: PhotoId,
    /// The faces in it that the visitor asks to be removed; none in other reports.
    pub faces: Vec<BoundingBox>,
}

/// How many reports there may be of an album, beside requests to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportLimits {
    /// In all.
    pub album: u32,
    /// Of one visitor.
    pub visitor: u32,
}

/// A report of a visitor.
#[derive(Clone, Debug)]
pub struct NewReport {
    /// The album.
    pub album: AlbumId,
    /// The photos; those that are not there any more are left out.
    pub photos: Vec<ReportedPhoto>,
    /// What is said.
    pub kind: ReportKind,
    /// Who says it: the HMAC of the network, or of the selfie or the bib whose owner asks to be removed.
    pub visitor: [u8; 32],
    /// In the visitor's words; of a request to be removed by a bib the bib.
    pub note: String,
    /// When, by the database's clock, microseconds: photos that were read since were not looked at.
    pub created_at: i64,
    /// How many reports there may be with it; `None` for as many as there are.
    pub limits: Option<ReportLimits>,
}

/// A report that was made.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredReport {
    /// Its id.
    pub id: ReportId,
    /// The photo.
    pub photo: PhotoId,
    /// The faces in it that the visitor asks to be removed.
    pub faces: Vec<BoundingBox>,
    /// What is said.
    pub kind: ReportKind,
    /// In the visitor's words; of a request to be removed by a bib the bib.
    pub note: String,
    /// When.
    pub created_at: OffsetDateTime,
}

impl StoredReport {
    /// The bib by which a visitor asks to be removed.
    #[must_use]
    pub fn bib(&self) -> Option<&str> {
        let is_by_bib = self.kind == ReportKind::Removal && self.faces.is_empty() && !self.note.is_empty();
        is_by_bib.then_some(self.note.as_str())
    }
}
