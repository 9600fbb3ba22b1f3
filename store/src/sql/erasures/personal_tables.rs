//! The tables whose deleted rows must leave the files of the database for an erasure to be complete.

/// Tables whose rows say something of a person, or are a secret of an organization.
pub(crate) const PERSONAL_TABLES: [&str; 17] = [
    "face",
    "seen_text",
    "probe",
    "photo",
    "start_list_entry",
    "bib_format",
    "erased_place",
    "gallery_consent",
    "gallery_report",
    "gallery_visitor",
    "organization",
    "account",
    "account_identity",
    "account_link",
    "account_session",
    "api_key",
    "webhook",
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::sql::tests::open_store;

    /// Tables of ids, counts, times and keyed digests.
    const OTHERS: [&str; 32] = [
        "_sqlx_migrations",
        "album",
        "album_change_feed",
        "album_to_judge",
        "album_to_learn",
        "cost_rollup",
        "credit_grant",
        "credit_low",
        "credit_shard",
        "download",
        "erased_bib",
        "erased_bib_secret",
        "erasure",
        "event",
        "event_cursor",
        "event_loss",
        "event_outbox",
        "gallery",
        "photo_change",
        "photo_count",
        "process",
        "rate_window",
        "receipt_key",
        "sign_in_attempt",
        "sign_in_wait",
        "sqlite_sequence",
        "start_list",
        "task_lease",
        "usage_rollup",
        "watermark",
        "webhook_attempt",
        "webhook_delivery",
    ];

    #[tokio::test]
    async fn each_table_is_cleaned_after_an_erasure_or_says_nothing_of_a_person() {
        let (_folder, _store, database) = open_store().await;
        let tables = sqlx::query_scalar("select name from sqlite_master where type = 'table'");
        let tables: Vec<String> = tables.fetch_all(&database.reader).await.unwrap();
        let known: BTreeSet<&str> = PERSONAL_TABLES.into_iter().chain(OTHERS).collect();
        let found: BTreeSet<&str> = tables.iter().map(String::as_str).collect();
        assert_eq!(found, known);
    }
}
