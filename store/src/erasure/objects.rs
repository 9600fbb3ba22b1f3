//! Deletes the objects of what was erased, the rows of an album and the vectors of one that loses all its faces. Whoever counts
//! them does so before the first is deleted, and once.

use futures_util::TryStreamExt;

use super::Eraser;
use crate::error::StoreErrorKind;
use crate::model::erasure::{Erasure, ErasureKind};
use crate::model::ids::{AlbumId, PhotoId};
use crate::model::object_key::{ObjectKey, ObjectRole};
use crate::sql::erasures::rows::StoredErasure;
use crate::traits::{Albums, Result};

impl Eraser {
    /// Deletes the objects of photos and selfies that were deleted, and those of an album with its rows.
    pub(super) async fn remove(&self, stored: &mut StoredErasure) -> Result<()> {
        if stored.erasure.kind == ErasureKind::Album {
            return self.remove_album(stored).await;
        }
        if stored.plan.all_faces {
            self.forget_all_faces(stored.erasure.album).await?;
        }
        let keys = list_objects(stored);
        if !stored.plan.is_measured {
            // Before the first is deleted: whoever goes on with this counts none of them again.
            for key in &keys {
                if let Some(bytes) = self.blobs.head(key).await? {
                    stored.erasure.removed.objects += 1;
                    stored.erasure.removed.bytes += bytes;
                }
            }
            stored.plan.is_measured = true;
            self.rows().note_measured(stored).await?;
        }
        for key in &keys {
            self.blobs.delete(key).await?;
        }
        self.delete_messages(stored).await
    }

    async fn forget_all_faces(&self, album: AlbumId) -> Result<()> {
        let mut after = None;
        loop {
            let page = self.removal().forget_page_of_faces(album, after).await?;
            if page.has_changed {
                self.face_cache.update_album(album).await;
            }
            if page.next.is_none() {
                return Ok(());
            }
            after = page.next;
        }
    }

    async fn delete_messages(&self, stored: &StoredErasure) -> Result<()> {
        match &self.messages {
            Some(messages) if stored.deletes_queued_photos() => {
                messages.delete_named(|photo| stored.deletes(photo)).await
            }
            _ => Ok(()),
        }
    }

    async fn remove_album(&self, stored: &mut StoredErasure) -> Result<()> {
        let Erasure { tenant, album, .. } = stored.erasure;
        let known = stored.plan.clone();
        if !stored.plan.is_measured {
            let mut removed = self.removal().count_album(album).await?;
            let mut objects = self.storage.list_album(tenant.organization, album);
            while let Some(object) = objects.try_next().await? {
                removed.objects += 1;
                removed.bytes += object.size_bytes;
            }
            stored.erasure.removed = removed;
            stored.plan.is_measured = true;
        }
        // Before the rows go that say it, and each time: leases are renewed until then.
        stored.plan.leased_until = stored.plan.leased_until.max(self.rows().find_last_lease(album).await?);
        if stored.plan != known {
            self.rows().note_measured(stored).await?;
        }
        // The objects before the rows, which are needed to find them, and again after them: a worker may have written some
        // while it still had the album.
        self.blobs.delete_album(tenant.organization, album).await?;
        match self.albums.delete(&tenant, album).await {
            Err(error) if error.kind == StoreErrorKind::NotFound => {}
            deleted => deleted?,
        }
        self.blobs.delete_album(tenant.organization, album).await?;
        self.delete_messages(stored).await
    }
}

/// The objects of the photos and selfies that an erasure deletes.
pub(super) fn list_objects(stored: &StoredErasure) -> Vec<ObjectKey> {
    let (organization, album) = (stored.erasure.tenant.organization, stored.erasure.album);
    let of_photo =
        |photo: &PhotoId| ObjectRole::ALL.map(|role| ObjectKey::photo(organization, album, *photo, role));
    let photos = stored.plan.deleted_photos.iter().flat_map(of_photo);
    let probes = stored.plan.probes.iter().map(|probe| ObjectKey::probe(organization, album, *probe));
    photos.chain(probes).collect()
}
