//! Whether the photo or the selfie exists for which an object is uploaded.

use crate::model::encoding::now_micros;
use crate::model::ids::{AlbumId, OrganizationId, PhotoId, ProbeId};
use crate::model::object_key::{ObjectKey, ObjectOwner, ObjectRole};
use crate::sql::database::Database;
use crate::sql::statement::query;
use crate::traits::{Result, UploadTarget};

const OPERATION: &str = "find the target of an upload";

/// Both by primary key. The state of a photo does not matter: a partner who repeats an upload after its confirmation,
/// because a response was lost, must not get an error that a bucket would not return.
const OPEN_PHOTOS: &str = "select count(*) from photo join album on album.id = photo.album \
     where photo.album = $1 and photo.id = $2 and album.organization = $3 and album.closed_at is null";

const OPEN_ALBUMS: &str =
    "select count(*) from album where id = $1 and organization = $2 and closed_at is null";

const OPEN_PROBES: &str = "select count(*), count(probe.embedding) + count(probe.refusal) from probe \
     join album on album.id = probe.album where probe.album = $1 and probe.id = $2 \
     and album.organization = $3 and album.closed_at is null and probe.expires_at > $4";

pub(crate) struct SqlUploadTargets {
    database: Database,
}

impl SqlUploadTargets {
    pub(crate) fn new(database: Database) -> Self {
        Self { database }
    }

    pub(crate) async fn find(&self, key: &ObjectKey) -> Result<UploadTarget> {
        match key.owner() {
            Some((organization, album, ObjectOwner::Photo(photo, ObjectRole::Original))) => {
                self.find_photo(organization, album, photo).await
            }
            Some((organization, album, ObjectOwner::Probe(probe))) => {
                self.find_probe(organization, album, probe).await
            }
            Some((organization, album, ObjectOwner::Watermark(_))) => {
                self.find_album(organization, album).await
            }
            // Pictures are written by workers; no URL for their upload is ever signed.
            Some((_, _, ObjectOwner::Photo(..))) | None => Ok(UploadTarget::Missing),
        }
    }

    async fn find_album(&self, organization: OrganizationId, album: AlbumId) -> Result<UploadTarget> {
        let (count,): (i64,) = query(OPERATION, OPEN_ALBUMS)
            .bind(album)
            .bind(organization)
            .fetch_one(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        Ok(if count == 0 { UploadTarget::Missing } else { UploadTarget::Open })
    }

    async fn find_photo(
        &self,
        organization: OrganizationId,
        album: AlbumId,
        photo: PhotoId,
    ) -> Result<UploadTarget> {
        let (count,): (i64,) = query(OPERATION, OPEN_PHOTOS)
            .bind(album)
            .bind(photo)
            .bind(organization)
            .fetch_one(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        Ok(if count == 0 { UploadTarget::Missing } else { UploadTarget::Open })
    }

    async fn find_probe(
        &self,
        organization: OrganizationId,
        album: AlbumId,
        probe: ProbeId,
    ) -> Result<UploadTarget> {
        let counts: (i64, i64) = query(OPERATION, OPEN_PROBES)
            .bind(album)
            .bind(probe)
            .bind(organization)
            .bind(now_micros())
            .fetch_one(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        Ok(match counts {
            (0, _) => UploadTarget::Missing,
            (_, 0) => UploadTarget::Open,
            _ => UploadTarget::UsedProbe,
        })
    }
}
