//! Tests of what is left of a deleted album in a database file.

use sqlx::AssertSqlSafe;

use super::connection::sqlite::SqliteFile;
use super::tests::open_store;
use crate::conformance::{AlbumFixture, face, text};
use crate::model::ids::AlbumId;
use crate::model::start_list::{ImportMode, StartListEntry, StartListImport};

/// Inserts what no call of the store leaves behind at once.
async fn insert_rows_of_album(database: &SqliteFile, album: AlbumId) {
    for insert in [
        "insert into event_cursor (album, published) values ($1, 0)",
        "insert into bib_format (album, learned, learned_at) values ($1, '{}', 0)",
        "insert into erased_bib (album, digest, erasure) values ($1, x'01', x'02')",
        "insert into erased_bib_secret (album, secret) values ($1, x'03')",
        "insert into gallery (album, enabled, link, link_digest, settings, updated_at) values ($1, 1, x'04', x'05', '{}', 0)",
        "insert into gallery_consent (id, album, text_version, language, probe, given_at) values (x'06', $1, 1, 'de', x'07', 0)",
        "insert into gallery_visitor (album, visitor, day, searches) values ($1, x'08', 0, 1)",
        "insert into gallery_report (id, album, photo, kind, visitor, note, created_at) \
         select x'09', album, id, 'not_me', x'08', '', 0 from photo where album = $1 limit 1",
        "insert into watermark (album, version, position, opacity, scale, asked, done) values ($1, 1, 'tile', 1, 1, 1, 0)",
        "insert into download (digest, album, photos, file, expires_at) values (x'0a', $1, '[]', 'preview', 0)",
        "insert into erased_place (album, photo, box_top, box_left, box_width, box_height, erasure) \
         select album, id, 0, 0, 1, 1, x'02' from photo where album = $1 limit 1",
    ] {
        sqlx::query(insert).bind(album).execute(&database.writer).await.unwrap();
    }
}

#[tokio::test]
async fn a_deleted_album_leaves_no_row_in_any_table() {
    let (_folder, store, database) = open_store().await;
    let kept = AlbumFixture::create(&store).await;
    kept.add_ready_photo(vec![face([1.0, 0.0, 0.0, 0.0])], vec![text("12", 0.99)]).await;
    let fixture = AlbumFixture::create(&store).await;
    for _ in 0..3 {
        fixture.add_ready_photo(vec![face([1.0, 0.0, 0.0, 0.0])], vec![text("34", 0.99)]).await;
    }
    store.probes.create(fixture.album, std::time::Duration::from_secs(60)).await.unwrap();
    fixture.create_photos(1200).await;
    let import = StartListImport {
        mode: ImportMode::Replace,
        entries: vec![StartListEntry::of("34".to_owned())],
        imported_by: fixture.key.id,
        max_entries: 10,
    };
    store.start_lists.import(fixture.album, import).await.unwrap();
    insert_rows_of_album(&database, fixture.album).await;
    // Events, usage and receipts outlive their album.
    let tables: Vec<String> = sqlx::query_scalar(
        "select m.name from sqlite_master m join pragma_table_info(m.name) c \
         where m.type = 'table' and c.name = 'album' and m.name not in ('event', 'event_outbox', 'webhook', \
         'usage_rollup', 'cost_rollup', 'erasure')",
    )
    .fetch_all(&database.reader)
    .await
    .unwrap();
    assert_eq!(tables.len(), 22, "{tables:?}");
    let rows = async |table: &str| -> i64 {
        let count = format!("select count(*) from {table} where album = $1");
        sqlx::query_scalar(AssertSqlSafe(count))
            .bind(fixture.album)
            .fetch_one(&database.reader)
            .await
            .unwrap()
    };
    for table in &tables {
        assert!(rows(table).await > 0, "nothing in {table} to delete");
    }
    // Rows that a cascade deletes with the album are deleted in one long transaction.
    sqlx::query(
        "create trigger in_steps before delete on album begin \
         select raise(abort, 'not in steps') where exists (select 1 from photo where album = old.id) \
         or exists (select 1 from photo_change where album = old.id) \
         or exists (select 1 from start_list_entry where album = old.id) \
         or exists (select 1 from probe where album = old.id); end",
    )
    .execute(&database.writer)
    .await
    .unwrap();
    store.albums.delete(&fixture.tenant, fixture.album).await.unwrap();
    for table in &tables {
        assert_eq!(rows(table).await, 0, "left in {table}");
    }
    assert_eq!(store.photos.count_by_state(kept.album).await.unwrap().ready, 1);
    let violations = sqlx::query("pragma foreign_key_check").fetch_all(&database.reader).await.unwrap();
    assert!(violations.is_empty());
}
