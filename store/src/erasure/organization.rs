//! Erases what is left of an organization whose albums were erased, and signs its receipt.

use futures_util::TryStreamExt;
use time::{Duration, OffsetDateTime};
use tokio::time::{Instant, sleep};

use super::Eraser;
use crate::error::{StoreError, StoreErrorKind};
use crate::model::erasure::{
    BackupNotice, ErasureScan, LedgerFate, OrganizationReceipt, OrganizationSubject, ScannedStore,
};
use crate::model::ids::{ErasureId, OrganizationId};
use crate::model::object_key::ObjectKey;
use crate::sql::erasures::organization;
use crate::traits::Result;

/// How long somebody may still see what was deleted, such as a backup that is being made.
const CLEAN_LIMIT: std::time::Duration = std::time::Duration::from_mins(10);
/// How often it looks meanwhile.
const CLEAN_POLL: std::time::Duration = std::time::Duration::from_secs(1);

impl Eraser {
    /// Deletes the objects that no album had, then the rows, cleans the files of the database, and looks for what is left.
    pub(super) async fn erase_all_of(
        &self,
        organization: OrganizationId,
        ledger: LedgerFate,
    ) -> Result<OrganizationReceipt> {
        let signer = self.signer()?;
        // The objects of an album go with its erasure, which counts them.
        organization::require_no_albums(&self.database, organization).await?;
        let mut objects = 0;
        let mut listed = self.storage.list_organization(organization);
        while let Some(object) = listed.try_next().await? {
            if let Some(key) = ObjectKey::parse(&object.path) {
                self.blobs.delete(&key).await?;
                objects += 1;
            }
        }
        let mut removed = organization::erase(&self.database, organization, ledger).await?;
        removed.insert("objects", objects);
        let scan = self.scan_until_clean(organization).await?;
        if scan.left > 0 {
            let what = format!("the organization is gone, but not from everywhere: {scan:?}");
            return Err(StoreError::new(StoreErrorKind::Conflict, what));
        }
        let issued_at = OffsetDateTime::now_utc();
        let until = self.backup_days.map(|days| issued_at + Duration::days(i64::from(days)));
        let mut receipt = OrganizationReceipt {
            receipt_id: ErasureId::generate(),
            issued_at,
            organization_id: organization,
            subject: OrganizationSubject { kind: "organization" },
            removed,
            kept: self.list_kept_of_organization(ledger, objects),
            scan,
            backups: BackupNotice { until },
            jws: String::new(),
        };
        receipt.jws = signer.sign_json(&receipt)?;
        self.rows().keep_key(&signer.public_key()).await?;
        Ok(receipt)
    }

    /// Looks again while something is left, such as what a backup that is being made still sees.
    async fn scan_until_clean(&self, organization: OrganizationId) -> Result<ErasureScan> {
        let deadline = Instant::now() + CLEAN_LIMIT;
        loop {
            let scan = self.scan_organization(organization).await?;
            if scan.left == 0 || Instant::now() >= deadline {
                return Ok(scan);
            }
            sleep(CLEAN_POLL).await;
        }
    }

    async fn scan_organization(&self, organization: OrganizationId) -> Result<ErasureScan> {
        let mut objects = ScannedStore { store: "objects".to_owned(), looked: 1, left: 0 };
        let mut listed = self.storage.list_organization(organization);
        while listed.try_next().await?.is_some() {
            objects.left += 1;
        }
        let is_clean = self.cleaner.clean(&self.database).await?;
        let rows = organization::scan(&self.database, organization).await?;
        let stores = vec![rows, objects, self.report_files(is_clean)];
        let left = stores.iter().map(|scanned| scanned.left).sum();
        Ok(ErasureScan { finished_at: OffsetDateTime::now_utc(), stores, left })
    }
}
