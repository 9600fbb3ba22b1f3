//! Credits of a whole service: on the command line, under kills, and limits that several processes share.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use photofinish_servers::Postgres;
use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{ALL_SCOPES, Partner, Service, ServiceOptions, wait_until};
use serde_json::{Value, json};
use sqlx::{Connection, SqliteConnection};

fn credits(partner: &Partner) -> Value {
    partner.call_ok("/credits/get", &json!({}))
}

fn enforced() -> ServiceOptions {
    ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_CREDITS", "on")
}

#[test]
fn operators_grant_credits_and_read_usage_on_the_command_line() {
    let service = Service::start(enforced());
    let key = service.create_key_for("Paying Runners", &ALL_SCOPES, "live");
    let partner = service.partner_with(&key);
    let album = partner.create_album("Paid");
    let photo = TestPhoto::new(600, 400).to_jpeg();
    let sign = json!({ "albumId": album, "filename": "a.jpg", "contentType": "image/jpeg" });
    partner.call("/photos/photo/signed", &sign).expect_defined_error(422);
    let grant = ["credits", "grant", "--organization", "Paying Runners", "--note", "invoice 7", "--amount"];
    let granted = service.run(&[&grant[..], &["4.5"]].concat());
    assert!(granted.expect_success().contains("balance 4.5"), "{}", granted.stdout);
    // The service knows a balance for five seconds.
    wait_until("tickets are given out", || partner.call("/photos/photo/signed", &sign).status == 200);
    for number in 0..3 {
        partner.upload_photo(&album, &format!("{number}.jpg"), &photo);
    }
    partner.upload_photo(&album, "damaged.jpg", &photo[..photo.len() / 2]);
    wait_until("all photos have settled", || credits(&partner)["held"] == json!(0));
    assert_eq!(credits(&partner)["spent"], json!(3));
    let shown = service.run(&["credits", "show", "--organization", "Paying Runners"]);
    let live =
        shown.expect_success().lines().find(|line| line.starts_with("live")).expect("a line").to_owned();
    assert_eq!(
        live.split_whitespace().collect::<Vec<_>>().join(" "),
        "live balance 1.5 held 0 spent 3 granted 4.5"
    );
    let usage = ["usage", "--organization", "Paying Runners", "--from", "2026-01-01", "--to", "2999-12-31"];
    let csv = service.run(&[&usage[..], &["--by", "album,operation", "--csv"]].concat());
    let lines: Vec<String> = csv.expect_success().lines().map(str::to_owned).collect();
    assert_eq!(
        lines,
        [
            "album,operation,count,credits".to_owned(),
            format!("{album},photo,3,3"),
            format!("{album},photo_failed,1,0")
        ]
    );
    let table = service.run(&usage);
    assert!(
        table.expect_success().lines().last().is_some_and(|line| line.starts_with("total")),
        "{}",
        table.stdout
    );
    for wrong in [
        &["credits", "show", "--organization", "Nobody"][..],
        &["credits", "grant", "--organization", "Nobody", "--amount", "1"],
        &["credits", "grant", "--organization", "Paying Runners", "--amount", "0.0001"],
        &["usage", "--organization", "Paying Runners", "--from", "2026-02-01", "--to", "2026-01-01"],
    ] {
        let output = service.run(wrong);
        assert!(output.code.is_some_and(|code| code != 0), "{wrong:?} succeeded");
        assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
    }
}

#[test]
fn a_key_is_created_with_limits_and_listed_with_them() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let create = ["key", "create", "--organization", "Limited", "--mode", "test", "--scope", "search:read"];
    let key = service.run(&[&create[..], &["--limit", "read=2,search=6000"]].concat());
    let key = key.expect_success().trim().to_owned();
    assert!(service.run(&["key", "list"]).expect_success().contains("limits read=2,search=6000"));
    let partner = service.partner_with(&key);
    // The third request may be the first of the next minute, the fifth cannot be.
    let statuses: Vec<u16> = (0..5).map(|_| partner.call("/credits/get", &json!({})).status).collect();
    assert!(statuses.contains(&429) && statuses.contains(&200), "{statuses:?}");
    let refused = service.run(&[&create[..], &["--limit", "write=2"]].concat());
    assert!(
        refused.code.is_some_and(|code| code != 0) && refused.stderr.contains("upload"),
        "{}",
        refused.stderr
    );
}

/// Processes that are killed while photos are uploaded, processed, retried and processed again: at each moment the rows agree,
/// and in the end what was spent is the number of photos that are ready.
#[test]
fn kills_lose_no_credits_and_charge_nothing_twice() {
    // At first it takes small photos alone: large ones fail, and are retried once it takes them too.
    let mut service = Service::start(enforced().with_setting("PHOTOFINISH_MAX_MEGAPIXELS", "1"));
    let partner = service.partner_with(&service.create_key_for("Killed Runners", &ALL_SCOPES, "test"));
    let album = partner.create_album("Killed");
    let (photo, large) = (TestPhoto::new(600, 400).to_jpeg(), TestPhoto::new(1500, 1000).to_jpeg());
    let upload = |name: &str, bytes: &[u8]| partner.upload_photo(&album, name, bytes);
    let failing = [
        upload("large.jpg", &large),
        upload("another.jpg", &large),
        upload("damaged.jpg", &photo[..photo.len() / 2]),
    ];
    for round in 0..4 {
        for number in 0..11 {
            upload(&format!("{round}-{number}.jpg"), &photo);
        }
        match round {
            1 => wait_until("three photos have failed", || partner.album_progress(&album)["failed"] == 3),
            2 => retry(&partner, &album, &failing),
            3 => drop(partner.call_ok("/albums/reprocess", &json!({ "albumId": album }))),
            _ => {}
        }
        service.kill();
        if round == 1 {
            service = service.restart_with(enforced());
        } else {
            service.restart();
        }
        check_balance(&partner, &album);
    }
    let counts = partner.wait_until_idle(&album);
    let ready = 4 * 11 + 2;
    assert_eq!((&counts["ready"], &counts["failed"]), (&json!(ready), &json!(1)));
    wait_until("nothing is held", || credits(&partner)["held"] == json!(0));
    let end = credits(&partner);
    assert_eq!((&end["spent"], &end["balance"]), (&json!(ready), &json!(10_000 - ready)));
    service.kill();
    check_rows(&service.data_dir(), ready);
}

fn retry(partner: &Partner, album: &str, photos: &[String]) {
    for photo in photos {
        partner.call_ok("/photos/photo/retry", &json!({ "albumId": album, "photoId": photo }));
    }
}

/// Compares the rows of a service that has ended: all photos that are ready were charged, no others, and each once.
fn check_rows(folder: &Path, ready: i64) {
    const ROWS: &str = "select (select count(*) from photo where state = 'ready'), \
        (select count(*) from photo where state = 'ready' and charged_at is not null), \
        (select count(*) from photo where charged_at is not null), \
        (select coalesce(sum(spent), 0) from credit_shard), (select coalesce(sum(credits), 0) from usage_rollup), \
        (select coalesce(sum(held), 0) from credit_shard), (select coalesce(sum(held), 0) from photo)";
    type Row = (i64, i64, i64, i64, i64, i64, i64);
    let url = format!("sqlite:{}", folder.join("photofinish.sqlite").display());
    let read = async {
        let mut connection = SqliteConnection::connect(&url).await?;
        sqlx::query_as::<_, Row>(ROWS).fetch_one(&mut connection).await
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let rows = runtime.block_on(read).expect("the rows of the database");
    let (ready_now, charged_of_ready, charged, spent, used, held, held_for_photos) = rows;
    assert_eq!((ready_now, charged_of_ready, charged), (ready, ready, ready));
    // In thousandths of a credit.
    assert_eq!((spent, used, held, held_for_photos), (1000 * ready, 1000 * ready, 0, 0));
}

/// Between two looks at the photos, what is held is the number of those that are queued or processing and were never ready.
fn check_balance(partner: &Partner, album: &str) {
    let counts = || {
        let counts = partner.call_ok("/albums/progress", &json!({ "albumId": album }));
        let count = |name: &str| counts[name].as_u64().expect("a number");
        (count("queued") + count("processing"), count("ready"))
    };
    let (before, after) = (counts(), counts());
    let held = credits(partner)["held"].as_u64().expect("a number");
    let spent = credits(partner)["spent"].as_u64().expect("a number");
    // Photos that were queued again hold nothing, and photos go on while this looks.
    assert!(held <= before.0, "{held} held, {before:?} waited, then {after:?}");
    assert!(spent + held <= before.0 + before.1 + held, "{spent} spent, {held} held, {before:?}");
}

/// Three processes with an API on one Postgres and one key, hammered for some seconds: they admit no more than the limit and
/// ask the database for a hundredth of it at a time, however many requests there are.
#[test]
fn processes_share_the_limit_of_a_key() {
    const LIMIT: u32 = 300;
    /// Of one window: a hundredth each time, and the last ones of each process, which are refused or smaller.
    const STATEMENTS: u64 = 115;
    let Some(server) = Postgres::start_counting() else { return };
    let database = server.create_database();
    assert_eq!(server.count_calls(&database, "insert into rate_window"), 0);
    let options = ServiceOptions::with_fake_models()
        .with_role("serve")
        .with_setting("PHOTOFINISH_DATABASE_URL", database.as_str())
        .with_setting("PHOTOFINISH_RATE_LIMITS", format!("read={LIMIT}"));
    let first = Service::start(options.clone());
    let services = [first.start_beside(options.clone()), first.start_beside(options), first];
    let key = services[2].create_key(&ALL_SCOPES, "live");
    let partners: Vec<Partner> = services.iter().map(|service| service.partner_with(&key)).collect();
    // A window has to be there for as long as this takes.
    let reset = |response: &photofinish_tests::harness::Response| -> u32 {
        response.header("ratelimit-reset").expect("a limit").parse().expect("a number")
    };
    // Of the requests that look for it, the last one alone is in the window: it ends the wait.
    let mut in_window = 0;
    wait_until("a new window begins", || {
        let response = partners[0].call("/credits/get", &json!({}));
        let is_new = reset(&response) > 45;
        in_window += u32::from(is_new && response.status == 200);
        is_new
    });
    let (admitted, refused) = (AtomicU32::new(in_window), AtomicU32::new(0));
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for partner in &partners {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..LIMIT {
                        if begin.elapsed() > Duration::from_secs(40) {
                            break;
                        }
                        match partner.call("/credits/get", &json!({})).status {
                            200 => admitted.fetch_add(1, Ordering::SeqCst),
                            429 => refused.fetch_add(1, Ordering::SeqCst),
                            other => panic!("status {other}"),
                        };
                    }
                });
            }
        }
    });
    assert!(begin.elapsed() < Duration::from_secs(44), "the window is over");
    let (admitted, refused) = (admitted.into_inner(), refused.into_inner());
    assert!(refused > 0 && admitted <= LIMIT, "{admitted} of {LIMIT} admitted, {refused} refused");
    // A process that refuses has found the limit taken, in parts of three units. It takes a part to spend of it at once, so that
    // two units of the last part of each process may be left, where it is asked no more: 294 of 300 are admitted at least.
    assert!(f64::from(admitted) >= 0.97 * f64::from(LIMIT), "{admitted} of {LIMIT} admitted");
    // The first requests, which waited for a window, were in the one before.
    let statements = server.count_calls(&database, "insert into rate_window");
    assert!(statements <= 2 * STATEMENTS, "{statements} statements for {} requests", admitted + refused);
}
