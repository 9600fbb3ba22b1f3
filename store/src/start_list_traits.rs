//! Start lists: who imports them, and who judges by them. The traits are part of [`crate::traits`].

use std::collections::HashMap;

use async_trait::async_trait;

use crate::error::StoreError;
use crate::model::bib_format::LearnedFormat;
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::process::TaskLease;
use crate::model::start_list::{
    CheckedStartList, EntryPage, EntryQuery, ExplainedText, ImportedStartList, JudgedPhotos, StartListEntry,
    StartListImport, StartListSummary,
};

type Result<T> = std::result::Result<T, StoreError>;

/// The start lists of albums. The caller has checked that the album belongs to the tenant.
#[async_trait]
pub trait StartLists: Send + Sync {
    /// Imports entries in one transaction. Where another bib is on the list then, or another number excluded, ready photos
    /// are judged again after it; others by the new list when they are finished. `TooLarge` when the album would have too
    /// many bibs or excluded numbers.
    async fn import(&self, album: AlbumId, import: StartListImport) -> Result<ImportedStartList>;
    /// Judges up to `max_photos` ready photos by the list that an import would make, and keeps nothing; one check at a time,
    /// the organizations in turn. `TooLarge` as for an import.
    async fn check(
        &self,
        album: AlbumId,
        import: StartListImport,
        max_photos: u32,
    ) -> Result<CheckedStartList>;
    /// Returns the list; `None` if the album has none.
    async fn get(&self, album: AlbumId) -> Result<Option<StartListSummary>>;
    /// Returns a page of its entries, without excluded numbers.
    async fn list_entries(&self, album: AlbumId, query: EntryQuery) -> Result<EntryPage>;
    /// Removes the list; every text becomes what was read. Without effect if there is none.
    async fn delete(&self, album: AlbumId) -> Result<()>;
    /// Returns the texts of a photo, in the order of detection, with what else they may be by the rules of the album.
    async fn explain_texts(&self, album: AlbumId, photo: PhotoId) -> Result<Vec<ExplainedText>>;
    /// Returns the format that the sure readings of the album show; without shapes if there are too few, or none.
    async fn get_format(&self, album: AlbumId) -> Result<LearnedFormat>;
    /// Returns the entries of these bibs that are on the list; `None` if the album has no list, or one without bibs.
    async fn find_entries(
        &self,
        album: AlbumId,
        bibs: Vec<String>,
    ) -> Result<Option<HashMap<String, StartListEntry>>>;
}

/// Learns the formats of albums that have grown, and judges photos again whose album got another list or format. Only the holder of the task may.
#[async_trait]
pub trait Judging: Send + Sync {
    /// Whether there is something to learn or to judge. Costs two probes of indexes and no write.
    async fn is_due(&self) -> Result<bool>;
    /// Learns the format of one album, or judges some photos of one, in one transaction; by turns where both are due. The
    /// organizations are served in turn, and the albums of each. `Conflict` when another process has the task.
    async fn judge(&self, lease: TaskLease) -> Result<JudgedPhotos>;
}
