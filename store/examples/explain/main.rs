//! Prints the Postgres plans of the most frequent statements at full size: `cargo run --release -p photofinish-store
//! --example explain > docs/QUERIES.md`. Starts a server of its own, fills it with 500,000 photos and 1.5 million faces
//! (3 GB, removed at the end), makes the calls of the store, and prints the plans that the server's own `auto_explain`
//! gives of them.

mod erasures;
mod events;
mod fill;
mod plans;

use std::error::Error;
use std::time::Duration;

use photofinish_servers::Postgres;
use photofinish_store::conformance::{AlbumFixture, face, test_settings, text};
use photofinish_store::model::credit::{CreditSettings, Credits, NewGrant};
use photofinish_store::model::gallery::NewConsent;
use photofinish_store::model::ids::ProbeId;
use photofinish_store::model::photo::{Embedding, PhotoQuery, PhotoState};
use photofinish_store::model::process::Task;
use photofinish_store::model::rate::{RateClass, RateShare};
use photofinish_store::traits::{Lease, PhotoResults, PictureSizes, TextQuery};
use photofinish_store::{Store, StoreSettings};

use self::plans::{PlanReport, Plans};

const LONG: Duration = Duration::from_secs(3600);
const BATCH: usize = 64;

/// Connection options that make the server send the plan of each statement to the client.
const AUTO_EXPLAIN: &str = "options[session_preload_libraries]=auto_explain&options[auto_explain.log_min_duration]=0\
                       &options[auto_explain.log_analyze]=on&options[auto_explain.log_buffers]=on\
                       &options[auto_explain.log_triggers]=on&options[client_min_messages]=log";

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
        credits: CreditSettings { is_enforced: true, ..CreditSettings::default() },
        ..test_settings(folder.path())
    });
    let store = store.await?;
    let fixture = AlbumFixture::create(&store).await;
    let mut fixtures = Vec::new();
    for _ in 0..9 {
        fixtures.push(AlbumFixture::create(&store).await);
    }
    for fixture in fixtures.iter().chain([&fixture]) {
        let grant = NewGrant {
            tenant: fixture.tenant,
            amount: Credits::MAX,
            note: String::new(),
            granted_by: "explain".to_owned(),
        };
        store.credits.grant(grant).await?;
    }
    fill::fill_database(&url, &fixture, &fixtures).await?;
    print_heading();
    let mut report = PlanReport::new(plans);
    run_queue_calls(&mut report, &fixture).await?;
    events::run_calls(&mut report, &fixtures[1], &fixtures[8]).await?;
    run_searches(&mut report, &fixture, &fixtures[0]).await?;
    run_gallery_calls(&mut report, &fixtures[0]).await?;
    measure_queue(&mut report, &fixture.store).await?;
    erasures::run_calls(&mut report, &fixture, &fixtures[2]).await?;
    report.print();
    Ok(())
}

fn print_heading() {
    println!("# Plans of the most frequent statements\n");
    println!(
        "Written by `cargo run --release -p photofinish-store --example explain`: Postgres 15 with its default settings,"
    );
    println!(
        "500,000 photos in ten albums (320,000 in one), 1.5 million faces of 256 floats, 10,000 photos waiting; 2,000"
    );
    println!(
        "more organizations with an album, a webhook, 16 parts of a balance and 100 days of usage each, and 200,000"
    );
    println!(
        "events with their deliveries. The calls are those of the store; a batch is {BATCH} photos with 3 faces and 1"
    );
    println!(
        "text each. Each statement ran several times; the run with the most rows is shown, with its time and the pages"
    );
    println!("of 8 KB that it read.");
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
        watermark_version: 0,
        pictures: PictureSizes::default(),
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

async fn run_gallery_calls(report: &mut PlanReport, fixture: &AlbumFixture) -> Result<(), Box<dyn Error>> {
    let (galleries, probe) = (&fixture.store.galleries, ProbeId::generate());
    let consent = NewConsent { album: fixture.album, text_version: 1, language: "en".to_owned(), probe };
    galleries.give_consent(consent).await?;
    for _ in 0..6 {
        galleries.has_consent(fixture.album, probe).await?;
    }
    report.add_plan(&report.plans.take(), "gallery: the consent to a selfie", "from gallery_consent");
    let lease = events::take(fixture, Task::Ledger).await?;
    for _ in 0..6 {
        fixture.store.ledger_task.run(lease).await?;
    }
    report.add_plan(
        &report.plans.take(),
        "gallery: delete the searches of visitors on earlier days",
        "delete from gallery_visitor",
    );
    Ok(())
}

async fn measure_queue(report: &mut PlanReport, store: &Store) -> Result<(), Box<dyn Error>> {
    for _ in 0..6 {
        store.queue.depth().await?;
        store.queue.waiting_since().await?;
    }
    let plans = report.plans.take();
    report.add_plan(&plans, "queue: how many photos wait", "sum(photo_count.count)");
    report.add_plan(&plans, "queue: since when the oldest waits", "select min((select confirmed_at");
    Ok(())
}
