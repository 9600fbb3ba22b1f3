//! Prints the Postgres plans of the most frequent statements at full size: `cargo run --release -p photofinish-store
//! --example explain > docs/QUERIES.md`. Starts a server of its own, fills it with 500,000 photos and 1.5 million faces
//! (3 GB, removed at the end), makes the calls of the store, and prints the plans that the server's own `auto_explain`
//! gives of them.

use std::error::Error;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use photofinish_servers::Postgres;
use photofinish_store::conformance::{AlbumFixture, face, test_settings, text};
use photofinish_store::model::photo::{Embedding, PhotoQuery, PhotoState};
use photofinish_store::model::rate::{RateClass, RateShare};
use photofinish_store::traits::{Lease, PhotoResults, TextQuery};
use photofinish_store::{Store, StoreSettings};
use sqlx::{Connection, PgConnection};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event as LogEvent, Metadata, Subscriber};

const LONG: Duration = Duration::from_secs(3600);
/// Photos of the large album, and of each of the nine others.
const LARGE: i64 = 320_000;
const SMALL: i64 = 20_000;
const BATCH: usize = 64;

/// Connection options that make the server send the plan of each statement to the client.
const AUTO_EXPLAIN: &str = "options[session_preload_libraries]=auto_explain&options[auto_explain.log_min_duration]=0\
                       &options[auto_explain.log_analyze]=on&options[auto_explain.log_buffers]=on\
                       &options[auto_explain.log_triggers]=on&options[client_min_messages]=log";

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

/// Counts the photos, as for those that are older than the triggers.
const COUNTS: &str = include_str!("../migrations/postgres/0007_count_photos.sql");

/// Collects the plans that the server sends, in order.
#[derive(Clone, Default)]
struct Plans(Arc<Mutex<Vec<String>>>);

impl Plans {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Subscriber for Plans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "sqlx::postgres::notice"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &LogEvent<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Visit for Plans {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(value.to_owned());
        }
    }
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let plans = Plans::default();
    tracing::subscriber::set_global_default(plans.clone())?;
    let server = Postgres::shared().ok_or("no Postgres")?;
    let url = server.create_database();
    let folder = tempfile::tempdir()?;
    let store = Store::open(StoreSettings {
        database_url: format!("{url}?{AUTO_EXPLAIN}"),
        face_index_bytes: 1 << 30,
        ..test_settings(folder.path())
    });
    let store = store.await?;
    let fixture = AlbumFixture::create(&store).await;
    let mut fixtures = Vec::new();
    for _ in 0..9 {
        fixtures.push(AlbumFixture::create(&store).await);
    }
    fill_database(&url, &fixture, &fixtures).await?;
    print_heading();
    let mut report = PlanReport { plans, summary: String::new(), body: String::new() };
    run_queue_calls(&mut report, &fixture).await?;
    run_searches(&mut report, &fixture, &fixtures[0]).await?;
    report.print();
    Ok(())
}

async fn fill_database(
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
        for statement in [FACES, TEXTS, CHANGES] {
            sqlx::query(statement).bind(fixture.album).execute(&mut connection).await?;
        }
        let changes = "update album set changes = (select max(change) from photo_change where album = $1) \
                       where id = $1";
        sqlx::query(changes).bind(fixture.album).execute(&mut connection).await?;
    }
    sqlx::raw_sql(COUNTS).execute(&mut connection).await?;
    sqlx::query("vacuum analyze").execute(&mut connection).await?;
    eprintln!("filled in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn print_heading() {
    println!("# Plans of the most frequent statements\n");
    println!(
        "Written by `cargo run --release -p photofinish-store --example explain`: Postgres 15 with its default settings,"
    );
    println!(
        "500,000 photos in ten albums (320,000 in one), 1.5 million faces of 256 floats, 10,000 photos waiting. The"
    );
    println!(
        "calls are those of the store; a batch is {BATCH} photos with 3 faces and 1 text each. Each statement ran"
    );
    println!(
        "several times; the run with the most rows is shown, with its time and the pages of 8 KB that it read."
    );
}

/// The report to print: a table with a line per statement, then each statement with its plan.
struct PlanReport {
    plans: Plans,
    summary: String,
    body: String,
}

impl PlanReport {
    /// Adds the plan with the most rows among those whose statement contains the text.
    fn add_plan(&mut self, plans: &[String], what: &str, contains: &str) {
        let is_it = |plan: &&String| {
            plan.lines().any(|line| line.starts_with("Query Text") && line.contains(contains))
        };
        let plan = plans.iter().filter(is_it).max_by_key(|plan| max_rows(plan));
        let plan = plan.unwrap_or_else(|| panic!("no plan of a statement with `{contains}`"));
        let milliseconds = between(plan, "duration: ", " ms").unwrap_or_default();
        let pages = between(plan, "Buffers: shared hit=", "\n").unwrap_or_default();
        let hit = pages.split(' ').next().unwrap_or_default();
        let read = between(pages, "read=", " ").unwrap_or("0");
        self.summary += &format!("| {what} | {} | {milliseconds} | {hit} | {read} |\n", max_rows(plan));
        self.body += &format!("\n## {what}\n\n```\n{}\n```\n", shorten_lists(plan.trim_end()));
    }

    fn print(&self) {
        println!("\n| statement | rows | ms | pages from memory | pages from disk |\n|---|---|---|---|---|");
        print!("{}{}", self.summary, self.body);
    }
}

fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    let rest = text.split_once(before)?.1;
    Some(rest.split(after).next().unwrap_or(rest))
}

/// The largest row count of any step of the plan: the top line does not count the rows that a statement changes.
fn max_rows(plan: &str) -> u64 {
    let steps = plan.split("(actual time=").skip(1);
    steps.filter_map(|step| between(step, "rows=", " ")?.parse().ok()).max().unwrap_or(0)
}

/// Shortens long lists of values to the first few.
fn shorten_lists(plan: &str) -> String {
    const KEPT: usize = 3;
    let mut text = String::new();
    for (number, part) in plan.split("'{").enumerate() {
        if number == 0 {
            text += part;
            continue;
        }
        let (list, rest) = part.split_once("}'").unwrap_or((part, ""));
        let values: Vec<&str> = list.split(',').collect();
        let kept = values[..KEPT.min(values.len())].join(",");
        let more = values.len().saturating_sub(KEPT);
        let left_out = if more > 0 { format!(", and {more} more") } else { String::new() };
        text += &format!("'{{{kept}{left_out}}}'{rest}");
    }
    text
}

async fn run_queue_calls(report: &mut PlanReport, fixture: &AlbumFixture) -> Result<(), Box<dyn Error>> {
    report.plans.take();
    for _ in 0..6 {
        fixture.queue_photos(BATCH).await;
    }
    let plans = report.plans.take();
    report.add_plan(&plans, "confirm: lock the photos", "for no key update");
    report.add_plan(
        &plans,
        "confirm: queue the photos and hold their price",
        "state = 'queued', confirmed_at",
    );
    for _ in 0..6 {
        fixture.store.credits.balance(&fixture.tenant).await?;
    }
    let plans = report.plans.take();
    report.add_plan(&plans, "confirm, credits enforced: what the tenant has left", "from credit_grant");
    let mut leases = Vec::new();
    for _ in 0..6 {
        leases = fixture.lease_fresh(BATCH, LONG).await;
    }
    let plans = report.plans.take();
    report.add_plan(
        &plans,
        "lease: organizations with fresh photos",
        "with recursive waiting (organization)",
    );
    report.add_plan(&plans, "lease: albums of one", "with recursive waiting (album)");
    report.add_plan(&plans, "lease: the oldest photos of an album", "skip locked");
    report.add_plan(&plans, "lease: assign the leases", "attempts = attempts + 1");
    let ids: Vec<_> = leases.iter().map(|lease| lease.id).collect();
    for _ in 0..6 {
        fixture.store.queue.renew(&ids, LONG).await?;
    }
    report.add_plan(&report.plans.take(), "renew the leases of a batch", "with held as materialized");
    for _ in 0..6 {
        fixture.store.queue.finish(leases.iter().map(results_for).collect()).await?;
        leases = fixture.lease_fresh(BATCH, LONG).await;
    }
    let plans = report.plans.take();
    report.add_plan(&plans, "finish: make the photos ready", "set state = 'ready'");
    report.add_plan(&plans, "finish: delete earlier detections", "delete from face");
    report.add_plan(&plans, "finish: insert the faces", "insert into face");
    report.add_plan(&plans, "finish: spend what is held, and count it", "Query Text: with balances as");
    report.add_plan(&plans, "finish: increment the change number of the album", "changes = changes + 1");
    let windows = fixture.store.rate_windows.clone().ok_or("no Postgres")?;
    for _ in 0..6 {
        let (key, class) = (fixture.key.id, RateClass::Read);
        windows.take(RateShare { key, class, begins: 60, units: 6, limit: 600 }).await?;
    }
    report.add_plan(&report.plans.take(), "rate limit: take a hundredth", "insert into rate_window");
    for _ in 0..6 {
        fixture.store.outbox_queue.list_unpublished(256).await?;
    }
    let plans = report.plans.take();
    report.add_plan(&plans, "outbox: organizations", "with recursive waiting (organization)");
    report.add_plan(&plans, "outbox: albums of one", "with recursive waiting (album)");
    report.add_plan(&plans, "outbox: unpublished photos", "(confirmed_at, id) >");
    Ok(())
}

fn results_for(lease: &Lease) -> PhotoResults {
    PhotoResults {
        lease: lease.clone(),
        size: photofinish_store::model::photo::PhotoSize { width: 6000, height: 4000 },
        taken_at: None,
        camera: None,
        skipped_runners: 0,
        faces: (0..3)
            .map(|_| photofinish_store::model::photo::DetectedFace {
                embedding: Some(probe()),
                ..face([1.0; 4])
            })
            .collect(),
        texts: vec![text("1234", 0.99)],
    }
}

fn probe() -> Embedding {
    Embedding { model: "explain@1".into(), vector: vec![0.0625; 256] }
}

async fn run_searches(
    report: &mut PlanReport,
    large: &AlbumFixture,
    small: &AlbumFixture,
) -> Result<(), Box<dyn Error>> {
    let hits = small.store.faces.nearest(small.album, &probe(), 10, 0.5).await?;
    let plans = report.plans.take();
    report.add_plan(
        &plans,
        "face search: load a cold album (60,000 faces)",
        "model, embedding from face where album = $1",
    );
    report.add_plan(&plans, "face search: the bibs of its faces", "order by seen_text.album");
    report.add_plan(
        &plans,
        "face search: the vectors of its answer",
        "select id, model, embedding from face",
    );
    let queued = small.queue_photos(BATCH).await;
    let names: Vec<_> = queued
        .iter()
        .map(|photo| photofinish_store::traits::PhotoRef { album: small.album, photo: *photo })
        .collect();
    for _ in 0..2 {
        for answer in small.store.outbox_queue.lease_named(&names, LONG).await? {
            if let photofinish_store::traits::NamedLease::Leased(lease) = answer {
                small.store.queue.finish(vec![results_for(&lease)]).await?;
            }
        }
    }
    small.store.faces.nearest(small.album, &probe(), 10, 0.5).await?;
    report.add_plan(
        &report.plans.take(),
        "face search: catch up with 64 photos",
        "embedding from face where album = $1 and photo in (select photo from photo_change",
    );
    let ids: Vec<_> = hits.iter().map(|hit| hit.photo).collect();
    for _ in 0..6 {
        let query = TextQuery { text: "1234".into(), exact: false };
        large.store.texts.search(large.album, &query).await?;
        small.store.photos.get_many(small.album, &ids).await?;
        let query = PhotoQuery { after: None, limit: 50, state: Some(PhotoState::Failed) };
        large.store.photos.list(large.album, query).await?;
        let query = PhotoQuery { after: hits.first().map(|hit| hit.photo), limit: 50, state: None };
        small.store.photos.list(small.album, query).await?;
        large.store.photos.count_by_state(large.album).await?;
    }
    let plans = report.plans.take();
    report.add_plan(&plans, "bib search: one bib and its variants", "text = any");
    report.add_plan(&plans, "the photos of ten hits", "id = any");
    report.add_plan(&plans, "a page of photos", "where album = $1 and id > $2");
    report.add_plan(&plans, "a page of failed photos", "state = $4");
    report.add_plan(&plans, "the photos of an album by state", "from photo_count");
    Ok(())
}
