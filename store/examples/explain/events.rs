//! The calls of events, webhooks, credits and start lists, on one album.

use std::error::Error;
use std::time::Duration;

use photofinish_store::conformance::AlbumFixture;
use photofinish_store::model::album::Tenant;
use photofinish_store::model::credit::UsageQuery;
use photofinish_store::model::event::{EventQuery, EventType, KeptChanges};
use photofinish_store::model::ids::{ProcessId, WebhookId};
use photofinish_store::model::process::{Task, TaskLease};
use photofinish_store::model::start_list::{EntryQuery, ImportMode, StartListEntry, StartListImport};
use photofinish_store::model::webhook::{Attempt, AttemptOutcome, NewWebhook};
use photofinish_store::traits::{DeliveryRoom, NamedLease, PhotoRef, TextQuery};
use time::OffsetDateTime;

use crate::plans::PlanReport;
use crate::{BATCH, LONG, results_for};

/// Longer than photos are gathered before they are told.
const GATHER_TIME: Duration = Duration::from_millis(2100);

/// Longer than nothing may settle until an album is idle.
const IDLE_TIME: Duration = Duration::from_millis(10_100);

/// Makes the calls and adds their plans. `busy` is of the organization with half of all events.
pub async fn run_calls(
    report: &mut PlanReport,
    fixture: &AlbumFixture,
    busy: &AlbumFixture,
) -> Result<(), Box<dyn Error>> {
    let webhook = NewWebhook {
        tenant: fixture.tenant,
        created_by: fixture.key.id,
        url: "https://timing.example/hook".into(),
        label: String::new(),
        types: vec![EventType::PhotoReady, EventType::PhotoFailed],
        album: None,
        secret: [7; 32],
    };
    fixture.store.webhooks.create(webhook, 20).await?;
    for _ in 0..6 {
        finish_photos(fixture).await?;
    }
    publish(report, fixture).await?;
    send(report, fixture).await?;
    read(report, busy).await?;
    judge(report, fixture).await
}

async fn finish_photos(fixture: &AlbumFixture) -> Result<(), Box<dyn Error>> {
    let queued = fixture.queue_photos(BATCH).await;
    let names: Vec<_> = queued.iter().map(|photo| PhotoRef { album: fixture.album, photo: *photo }).collect();
    let answers = fixture.store.outbox_queue.lease_named(&names, LONG).await?.into_iter();
    let leased = answers.filter_map(|answer| match answer {
        NamedLease::Leased(lease) => Some(results_for(&lease)),
        _ => None,
    });
    fixture.store.queue.finish(leased.collect()).await?;
    Ok(())
}

async fn publish(report: &mut PlanReport, fixture: &AlbumFixture) -> Result<(), Box<dyn Error>> {
    let lease = take(fixture, Task::EventPublisher).await?;
    tokio::time::sleep(GATHER_TIME).await;
    report.plans.take();
    while fixture.store.event_publisher.is_due().await? {
        fixture.store.event_publisher.publish(lease).await?;
    }
    tokio::time::sleep(IDLE_TIME).await;
    fixture.store.event_publisher.publish(lease).await?;
    for _ in 0..6 {
        fixture.store.event_publisher.has_prunable_changes(&KeptChanges::OF_SERVICE).await?;
    }
    let plans = report.plans.take();
    report.add_plan(
        &plans,
        "publisher: whether something is due",
        "union all select 1 from (select 1 from event_outbox",
    );
    report.add_plan(&plans, "publisher: an album that is overdue", "order by since limit 1 for update");
    report.add_plan(
        &plans,
        "publisher: albums with changes",
        "order by since limit $2 for update skip locked",
    );
    report.add_plan(&plans, "publisher: the changes of an album", "select change, photo, mark");
    report.add_plan(&plans, "publisher: the states of their photos", "charged_at < settled_at");
    report.add_plan(&plans, "publisher: number an event", "insert into event (");
    report.add_plan(&plans, "publisher: the webhooks of a tenant", "select id, types, album from webhook");
    report.add_plan(&plans, "publisher: make a delivery", "insert into webhook_delivery");
    report.add_plan(&plans, "publisher: albums that may be idle", "select album from event_cursor");
    report.add_plan(&plans, "publisher: since when an album is idle", "select max(settled_at) from photo");
    report.add_plan(&plans, "publisher: events of other transactions", "delete from event_outbox");
    report.add_plan(&plans, "publisher: albums with old changes", "select album, before from");
    Ok(())
}

/// Room for four deliveries.
struct Room;

impl DeliveryRoom for Room {
    fn of_tenant(&self, _: &Tenant) -> usize {
        4
    }

    fn of_webhook(&self, _: WebhookId) -> usize {
        4
    }
}

async fn send(report: &mut PlanReport, fixture: &AlbumFixture) -> Result<(), Box<dyn Error>> {
    let deliveries = &fixture.store.deliveries;
    let mut outcomes = [AttemptOutcome::Retry(LONG), AttemptOutcome::Delivered].into_iter().cycle();
    while deliveries.is_due().await? {
        for due in deliveries.lease(4, LONG, &Room).await? {
            let outcome = outcomes.next().unwrap_or(AttemptOutcome::Delivered);
            let attempt = Attempt {
                at: OffsetDateTime::now_utc(),
                duration: Duration::from_millis(20),
                status: Some(204),
                error: None,
                answer: String::new(),
            };
            deliveries.finish(&due, &attempt, outcome).await?;
        }
    }
    let plans = report.plans.take();
    report.add_plan(&plans, "sender: webhooks with due deliveries", "with recursive waiting (webhook)");
    report.add_plan(&plans, "sender: the due deliveries of a webhook", "order by next_at limit");
    report.add_plan(&plans, "sender: count an attempt", "set attempts = attempts + 1, next_at");
    report.add_plan(&plans, "sender: what to send", "left join event e");
    report.add_plan(&plans, "sender: the outcome of a delivery", "update webhook_delivery set state");
    report.add_plan(&plans, "sender: keep the attempt", "insert into webhook_attempt");
    Ok(())
}

async fn read(report: &mut PlanReport, fixture: &AlbumFixture) -> Result<(), Box<dyn Error>> {
    let (events, today) = (&fixture.store.events, OffsetDateTime::now_utc().date());
    for _ in 0..6 {
        let types = vec![EventType::PhotoReady];
        let query = EventQuery { after: 0, types, album: None, limit: 100 };
        events.list(&fixture.tenant, query).await?;
        let newest = events.newest().await?;
        events.read_after(newest - 100, 1000).await?;
        let query = UsageQuery {
            from: today - time::Duration::days(30),
            to: today,
            by_day: true,
            by_album: false,
            by_operation: true,
            limit: 10_000,
        };
        fixture.store.credits.usage(&fixture.tenant, query).await?;
    }
    let plans = report.plans.take();
    report.add_plan(&plans, "events of a tenant: a page", "type = any($6)");
    report.add_plan(&plans, "events of all tenants, for streams", "from event where sequence > $1");
    report.add_plan(&plans, "usage of a month", "from usage_rollup");
    Ok(())
}

async fn judge(report: &mut PlanReport, fixture: &AlbumFixture) -> Result<(), Box<dyn Error>> {
    let import = StartListImport {
        mode: ImportMode::Replace,
        entries: (10_000..30_000).map(|bib| StartListEntry::of(bib.to_string())).collect(),
        imported_by: fixture.key.id,
        max_entries: 100_000,
    };
    fixture.store.start_lists.import(fixture.album, import).await?;
    let lease = take(fixture, Task::Judging).await?;
    report.plans.take();
    for _ in 0..6 {
        fixture.store.judging.is_due().await?;
        fixture.store.judging.judge(lease).await?;
        let bibs = ["11207", "4711"].map(str::to_owned).to_vec();
        fixture.store.start_lists.find_entries(fixture.album, bibs).await?;
        let query = EntryQuery { after: None, prefix: "12".to_owned(), limit: 100 };
        fixture.store.start_lists.list_entries(fixture.album, query).await?;
        fixture.store.start_lists.get(fixture.album).await?;
        let query = TextQuery { text: "12345".to_owned(), exact: true };
        fixture.store.texts.search(fixture.album, &query).await?;
    }
    // Every other step learns the format of an album, as long as there is one.
    while fixture.store.judging.is_due().await? {
        fixture.store.judging.judge(lease).await?;
    }
    let plans = report.plans.take();
    report.add_plan(
        &plans,
        "judging: 500 photos of an older list",
        "list_version < $2 order by list_version",
    );
    report.add_plan(&plans, "judging: their texts", "lattice from seen_text");
    report.add_plan(&plans, "judging: note the version", "update photo set list_version = $2 from");
    report.add_plan(&plans, "judging: write the texts that changed", "update seen_text set read_as");
    report.add_plan(
        &plans,
        "start list: the entries of some bibs",
        "from start_list_entry where album = $1 and bib",
    );
    report.add_plan(
        &plans,
        "start list: the spellings of a bib",
        "select bib, excluded, (select config from album",
    );
    report.add_plan(
        &plans,
        "start list: photos that are not judged yet",
        "select count(*) from photo where album = $1 and state = 'ready' and list_version",
    );
    report.add_plan(
        &plans,
        "start list: photos with a text that has no lattice",
        "where album = $1 and lattice is null",
    );
    report.add_plan(
        &plans,
        "formats: how often each bib of an album was read",
        "select coalesce(read_as, text), count(distinct photo)",
    );
    Ok(())
}

/// Takes a task that nobody has.
pub async fn take(fixture: &AlbumFixture, task: Task) -> Result<TaskLease, Box<dyn Error>> {
    let lease = fixture.store.tasks.take(task, ProcessId::generate(), LONG).await?;
    Ok(lease.ok_or("another process has the task")?)
}
