-- What the queue needs to serve organizations in turn: `migrations/sqlite` says what the columns mean. Both are added
-- without writing a row. The indexes are built while others write: see `CONCURRENT_INDEXES` in
-- `src/sql/connection/migration.rs`.

alter table photo
    add column organization uuid not null default 'ffffffff-ffff-ffff-ffff-ffffffffffff',
    add column size_bytes bigint;
