//! Which album is next: organizations take turns, and within an organization its albums do. So a hundred albums of one have one
//! share, and an album that fails keeps no other waiting.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::model::ids::{AlbumId, OrganizationId};
use crate::sql::database::Database;
use crate::sql::statement::{ConnectionRef, query};
use crate::traits::Result;

/// The statements that find albums for which something is to be done.
pub(super) struct DueAlbums {
    any: &'static str,
    /// The organization after `$1`, and after the last one the first.
    organization: &'static str,
    /// The album of organization `$1` after `$2`, and after the last one the first.
    album: &'static str,
}

/// These tables have no organization and are sorted: they have the albums that are not done yet alone.
macro_rules! due_albums {
    ($table:literal) => {
        DueAlbums {
            any: concat!("select album from ", $table, " limit 1"),
            organization: concat!(
                "select album.organization from ",
                $table,
                " as due join album on album.id = due.album \
                 order by album.organization <= $1, album.organization limit 1"
            ),
            album: concat!(
                "select album.id from ",
                $table,
                " as due join album on album.id = due.album where album.organization = $1 \
                 order by album.id <= $2, album.id limit 1"
            ),
        }
    };
}

pub(super) const TO_JUDGE: DueAlbums = due_albums!("album_to_judge");
pub(super) const TO_LEARN: DueAlbums = due_albums!("album_to_learn");

/// Whose turn it is, from step to step.
pub(super) struct AlbumTurns {
    due: DueAlbums,
    last: Mutex<LastTurns>,
}

/// Who had the last turn, of all that had one since nothing was due.
#[derive(Default)]
struct LastTurns {
    organization: Option<OrganizationId>,
    albums: HashMap<OrganizationId, AlbumId>,
}

impl AlbumTurns {
    pub(super) fn new(due: DueAlbums) -> Self {
        Self { due, last: Mutex::default() }
    }

    /// Whether anything is due, by one probe of an index.
    pub(super) async fn is_due<'c>(
        &self,
        on: impl Into<ConnectionRef<'c>>,
        operation: &'static str,
    ) -> Result<bool> {
        let any: Option<(AlbumId,)> = query(operation, self.due.any).fetch_optional(on).await?;
        if any.is_none() {
            *self.lock() = LastTurns::default();
        }
        Ok(any.is_some())
    }

    /// Returns the next album, which then has had its turn.
    pub(super) async fn next(&self, database: &Database, operation: &'static str) -> Result<Option<AlbumId>> {
        let mut reader = database.acquire_reader(operation).await?;
        let last = self.lock().organization.unwrap_or(OrganizationId(Uuid::nil()));
        let found: Option<(OrganizationId,)> =
            query(operation, self.due.organization).bind(last).fetch_optional(&mut reader).await?;
        let Some((organization,)) = found else { return Ok(None) };
        let last = self.lock().albums.get(&organization).copied().unwrap_or(AlbumId(Uuid::nil()));
        let found: Option<(AlbumId,)> = query(operation, self.due.album)
            .bind(organization)
            .bind(last)
            .fetch_optional(&mut reader)
            .await?;
        let Some((album,)) = found else { return Ok(None) };
        let mut turns = self.lock();
        turns.organization = Some(organization);
        turns.albums.insert(organization, album);
        Ok(Some(album))
    }

    fn lock(&self) -> MutexGuard<'_, LastTurns> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
