//! The rows of the database: photos, faces, texts, and what their events, credits, limits and start lists need.

use std::error::Error;
use std::time::Instant;

use photofinish_store::conformance::AlbumFixture;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

/// Photos of the large album, and of each of the nine others.
const LARGE: i64 = 320_000;
const SMALL: i64 = 20_000;

/// Inserts photos of an album: most are ready, some in each other state. `$2` makes the ids of the album unique.
const PHOTOS: &str = "insert into photo (album, id, filename, content_type, state, failure, width, height, \
     created_at, updated_at, confirmed_at, settled_at, published_at, organization) \
     select $1, (lpad(to_hex($2 * 1000000 + n), 12, '0') || '7000' || '8000' || lpad(to_hex(n), 12, '0'))::uuid, \
     'IMG_' || n || '.jpg', 'image/jpeg', \
     case when n % 50 = 0 then 'queued' when n % 100 = 1 then 'failed' when n % 100 = 3 then 'awaiting_upload' \
     else 'ready' end, case when n % 100 = 1 then 'CORRUPT_IMAGE' end, 6000, 4000, n, n, n, \
     case when n % 50 <> 0 and n % 100 <> 3 then n end, case when n % 100 <> 0 then n end, \
     (select organization from album where id = $1) from generate_series(1, $3) as n";

/// Inserts three faces per photo with embeddings of 256 values, all 1/16.
const FACES: &str = "insert into face (album, photo, box_top, box_left, box_width, box_height, confidence, model, \
     embedding) select album, id, 0.1, 0.2, 0.05, 0.08, 0.9, 'explain@1', decode(repeat('0000803d', 256), 'hex') \
     from photo, generate_series(1, 3) where album = $1";

const TEXTS: &str = "insert into seen_text (album, photo, text, box_top, box_left, box_width, box_height, \
     confidence, standing) select album, id, (row_number() over () % 20000)::text, 0.5, 0.2, 0.05, 0.03, 0.95, \
     'INDEXED' from photo where album = $1";

const CHANGES: &str = "insert into photo_change (album, change, photo) \
     select album, row_number() over () / 64 + 1, id from photo where album = $1";

/// Consents of visitors of an album to as many selfies.
const CONSENTS: &str = "insert into gallery_consent (id, album, text_version, language, probe, given_at) \
     select gen_random_uuid(), $1, 1, 'en', gen_random_uuid(), n from generate_series(1, 20000) as n";

/// Searches of visitors of an album, half of them on an earlier day.
const VISITORS: &str = "insert into gallery_visitor (album, visitor, day, searches) \
     select $1, decode(md5(n::text), 'hex'), case when n % 2 = 0 then 1 else 100000 end, 1 \
     from generate_series(1, 10000) as n";

/// Counts the photos, as for those that are older than the triggers.
const COUNTS: &str = include_str!("../../migrations/postgres/0007_count_photos.sql");

/// Other organizations, each with an album of no photos, a webhook, and grants.
const OTHERS: &str = "insert into organization (id, name, created_at) \
     select md5('organization' || n)::uuid, 'organization ' || n, n from generate_series(1, 2000) as n; \
     insert into album (id, organization, mode, created_by, title, title_folded, tags, config, created_at, updated_at, changes) \
     select md5('album' || n)::uuid, md5('organization' || n)::uuid, mode, created_by, title, title_folded, tags, config, n, n, 0 \
     from generate_series(1, 2000) as n, (select * from album limit 1) as one; \
     insert into event_cursor (album, published) select md5('album' || n)::uuid, 0 from generate_series(1, 2000) as n; \
     insert into webhook (id, organization, mode, created_by, url, label, types, enabled, secret, created_at, updated_at) \
     select md5('webhook' || n)::uuid, md5('organization' || n)::uuid, 'live', md5('key')::uuid, \
     'https://timing.example/hook', '', '[\"album.idle\"]', 1, '\\x00', n, n from generate_series(1, 2000) as n; \
     insert into credit_grant (id, organization, mode, amount, note, granted_by, created_at) \
     select md5('grant' || n || '.' || part)::uuid, md5('organization' || n)::uuid, 'live', 1000000, '', 'explain', n \
     from generate_series(1, 2000) as n, generate_series(1, 5) as part; \
     insert into credit_shard (organization, mode, part, held, spent) \
     select md5('organization' || n)::uuid, 'live', part, 0, 1000 \
     from generate_series(1, 2000) as n, generate_series(0, 15) as part; \
     insert into usage_rollup (organization, mode, day, album, operation, part, count, credits) \
     select md5('organization' || n)::uuid, 'live', 20000 + day, md5('album' || n)::uuid, 'photo', 3, 100, 100000 \
     from generate_series(1, 2000) as n, generate_series(1, 100) as day; \
     insert into rate_window (api_key, class, begins, taken) \
     select md5('key' || n)::uuid, class, 0, 6 \
     from generate_series(1, 2000) as n, unnest(array['read', 'upload', 'search']) as class";

/// Events of a week, half of them of the last organization, with a delivery each to one of the webhooks: nearly all delivered
/// at the first attempt.
const EVENTS: &str = "insert into event (id, organization, mode, type, album, data, created_at) \
     select md5('event' || n)::uuid, case when n % 2 = 0 then (select id from organization order by created_at desc limit 1) \
     else md5('organization' || n % 2000 + 1)::uuid end, 'live', \
     case when n % 100 = 0 then 'album.idle' else 'photo.ready' end, md5('album' || n % 2000 + 1)::uuid, \
     '{\"photos\":[' || repeat('{\"photoId\":\"01932c09-0000-7000-8000-000000000000\",\"again\":false},', 20) || '{}]}', n \
     from generate_series(1, 200000) as n; \
     insert into webhook_delivery (id, webhook, event, event_id, type, state, attempts, next_at, created_at) \
     select md5('delivery' || n)::uuid, md5('webhook' || n % 2000 + 1)::uuid, n, md5('event' || n)::uuid, 'photo.ready', \
     case when n % 1000 = 0 then 'pending' when n % 500 = 0 then 'failed' else 'delivered' end, 1, \
     case when n % 1000 = 0 then 9000000000000000 else n end, n from generate_series(1, 200000) as n; \
     insert into webhook_attempt (delivery, number, at, duration_ms, status, answer) \
     select md5('delivery' || n)::uuid, 1, n, 20, 204, '' from generate_series(1, 200000) as n";

/// Albums with changes that are not published yet, younger than all that the report publishes.
const FEED: &str = "insert into album_change_feed (album, since) \
     select md5('album' || n)::uuid, 9000000000000000 + n from generate_series(1, 500) as n";

pub async fn fill_database(
    url: &str,
    large: &AlbumFixture,
    small: &[AlbumFixture],
) -> Result<(), Box<dyn Error>> {
    let mut connection = PgConnection::connect(url).await?;
    // Skips foreign key checks, because the references are correct by construction, and triggers.
    sqlx::query("set session_replication_role = replica").execute(&mut connection).await?;
    let start = Instant::now();
    for (number, fixture) in std::iter::once(large).chain(small).enumerate() {
        let count = if number == 0 { LARGE } else { SMALL };
        sqlx::query(PHOTOS)
            .bind(fixture.album)
            .bind(number as i64)
            .bind(count)
            .execute(&mut connection)
            .await?;
        for statement in [FACES, TEXTS, CHANGES, CONSENTS, VISITORS] {
            sqlx::query(statement).bind(fixture.album).execute(&mut connection).await?;
        }
        let changes = "update album set changes = (select max(change) from photo_change where album = $1) \
                       where id = $1";
        sqlx::query(changes).bind(fixture.album).execute(&mut connection).await?;
    }
    for statements in [COUNTS, OTHERS, EVENTS, FEED] {
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut connection).await?;
    }
    // What is there was told; the report publishes what it changes.
    let told =
        "insert into event_cursor (album, published) select id, changes from album on conflict do nothing";
    sqlx::query(told).execute(&mut connection).await?;
    sqlx::query("vacuum analyze").execute(&mut connection).await?;
    eprintln!("filled in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}
