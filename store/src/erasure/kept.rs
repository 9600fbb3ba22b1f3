//! What an erasure leaves, in words for the person who asked.

use super::Eraser;
use crate::model::erasure::{ErasureKind, Kept, LedgerFate};
use crate::sql::DatabaseKind;
use crate::sql::erasures::rows::StoredErasure;

impl Eraser {
    /// Lists what stays.
    pub(super) fn list_kept(&self, stored: &StoredErasure) -> Vec<Kept> {
        let plan = &stored.plan;
        let mut kept = Vec::new();
        let mut keep = |what: String, why: &str| kept.push(Kept { what, why: why.to_owned() });
        if plan.kept_photos > 0 {
            keep(format!("{} photos", plan.kept_photos), "the request was to keep photos");
        }
        if plan.shared_photos > 0 {
            keep(format!("{} photos", plan.shared_photos), "other people can be found in them");
        }
        if plan.unread_photos > 0 {
            keep(
                format!("faces in {} photos that were not read yet", plan.unread_photos),
                "nobody could be looked for in them; ask again when they are ready",
            );
        }
        if plan.other_probes > 0 {
            keep(
                format!("{} selfies that could not be compared", plan.other_probes),
                "they were not searched with yet, or another network describes them; they are deleted when they expire",
            );
        }
        match stored.erasure.kind {
            ErasureKind::Face => keep(
                "photos that are uploaded from now on".to_owned(),
                "to recognise a person in them the service would have to keep the vector",
            ),
            ErasureKind::Bib => keep(
                "faces in photos that are uploaded from now on".to_owned(),
                "the bib will not be read there, but to recognise a person the service would have to keep a vector",
            ),
            ErasureKind::Album => keep(
                "ids and counts of the album in events and in the ledger".to_owned(),
                "they name no person",
            ),
            ErasureKind::Photo => {}
        }
        self.keep_everywhere(stored.erasure.removed.objects, &mut kept);
        kept
    }

    /// Lists what stays of an organization.
    pub(super) fn list_kept_of_organization(&self, ledger: LedgerFate, objects: u64) -> Vec<Kept> {
        let mut kept = vec![Kept {
            what: "receipts of what was erased".to_owned(),
            why: "they prove it, and name no person".to_owned(),
        }];
        if ledger == LedgerFate::KeepNumbers {
            kept.push(Kept {
                what: "sums of what was used by day".to_owned(),
                why: "accounts must be kept; they have no ids".to_owned(),
            });
        }
        self.keep_everywhere(objects, &mut kept);
        kept
    }

    /// Adds what stays whatever is erased.
    fn keep_everywhere(&self, objects: u64, kept: &mut Vec<Kept>) {
        let mut keep = |what: &str, why: &str| kept.push(Kept { what: what.to_owned(), why: why.to_owned() });
        match self.storage.keeps_versions() {
            Some(true) if objects > 0 => keep(
                "older versions of the objects",
                "the bucket keeps them until a rule of the bucket removes them",
            ),
            None if objects > 0 => keep(
                "older versions of the objects, if the bucket keeps them",
                "a rule of the bucket removes them",
            ),
            _ => {}
        }
        if self.database.kind() == DatabaseKind::Postgres {
            keep(
                "unused space in the files and the write-ahead log of the database server",
                "no query can read it; the server overwrites it when it uses the space again",
            );
        }
        if self.backup_days.is_none() {
            keep("backups", "backups are not covered");
        }
    }
}
