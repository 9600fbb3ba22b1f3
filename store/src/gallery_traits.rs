//! What other crates may call of galleries.

use async_trait::async_trait;

use crate::model::account::TokenDigest;
use crate::model::gallery::{
    Gallery, GalleryChange, NewConsent, NewReport, OpenGallery, StoredReport, VisitorSearch,
};
use crate::model::ids::{AlbumId, ConsentId, ProbeId, ReportId};
use crate::traits::Result;

/// Galleries of albums. The caller has checked with [`crate::traits::Albums::get`] that an album belongs to the tenant.
#[async_trait]
pub trait Galleries: Send + Sync {
    /// Whether links can be kept: there is a master secret to seal them with.
    fn can_seal(&self) -> bool;
    /// Returns the gallery of an album, if there was ever one.
    async fn get(&self, album: AlbumId) -> Result<Option<Gallery>>;
    /// Writes a gallery; keeps how often it was opened and searched. `Conflict` where there is another version by now than the one
    /// that it replaces.
    async fn save(&self, change: GalleryChange) -> Result<Gallery>;
    /// Returns the gallery of a link with its album, whether or not visitors may see it; `None` for an unknown link and for an
    /// album that is being deleted.
    async fn find(&self, link: &TokenDigest) -> Result<Option<OpenGallery>>;
    /// Counts that it was opened. Written by [`Self::flush_visits`], with what came before.
    fn count_opened(&self, album: AlbumId);
    /// Counts a search, unless the visitor or the network has made as many as they may; returns whether it was counted. The count
    /// of the gallery is written by [`Self::flush_visits`].
    async fn count_search(&self, search: VisitorSearch) -> Result<bool>;
    /// Writes what was counted of galleries since the last call; keeps it when that fails, unless it may have been written. Until
    /// then the other calls of this process know it.
    async fn flush_visits(&self) -> Result<()>;
    /// Keeps that somebody agreed to have a selfie compared.
    async fn give_consent(&self, consent: NewConsent) -> Result<ConsentId>;
    /// Keeps that the consent to a selfie was withdrawn. May be repeated.
    async fn withdraw_consent(&self, album: AlbumId, probe: ProbeId) -> Result<()>;
    /// Returns whether a selfie of the album was agreed to, and that was not withdrawn.
    async fn has_consent(&self, album: AlbumId, probe: ProbeId) -> Result<bool>;
    /// Keeps a report on each of its photos, all at one time; one of the same visitor on the same photo counts once. A request to
    /// be removed that is made again is as of then, with what is found then. Keeps nothing where there would be more reports than
    /// its limits; returns whether it is kept. Those that come at the same moment may exceed the limits by their number.
    async fn report(&self, report: NewReport) -> Result<bool>;
    /// Returns the newest reports of an album.
    async fn list_reports(&self, album: AlbumId, limit: u32) -> Result<Vec<StoredReport>>;
    /// Returns a report; of a request to be removed, those of all its photos. `NotFound`.
    async fn find_reports(&self, album: AlbumId, report: ReportId) -> Result<Vec<StoredReport>>;
    /// Deletes what [`Self::find_reports`] returns. Not an error when it is gone.
    async fn dismiss_reports(&self, album: AlbumId, report: ReportId) -> Result<()>;
}
