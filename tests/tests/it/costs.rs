//! What processing costs, beside the meters of the stages and the kernel's own account of the process.

use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{Partner, Service, ServiceOptions, wait_until};
use serde_json::{Value, json};

/// The days that a test asks for: midnight may pass while it runs.
fn days() -> Value {
    let today = time::OffsetDateTime::now_utc().date();
    let (from, to) = (today.previous_day().expect("a day before"), today.next_day().expect("a day after"));
    json!({ "from": from.to_string(), "to": to.to_string() })
}

fn costs(partner: &Partner, more: &Value) -> Value {
    let mut request = days();
    for (name, value) in more.as_object().expect("an object") {
        request[name] = value.clone();
    }
    partner.call_ok("/usage/costs", &request)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// CPU seconds of stages by the metrics page of the service.
fn metered(service: &Service, partner: &Partner, stages: &[&str]) -> f64 {
    let page = partner.get(&format!("{}/metrics", service.origin())).text();
    let of_stage = |stage: &&str| {
        let name = format!("photofinish_stage_cpu_seconds_total{{stage=\"{stage}\"}} ");
        let value = page.lines().find_map(|line| line.strip_prefix(&name));
        value.map_or(0.0, |value| value.parse::<f64>().expect("a number"))
    };
    stages.iter().map(of_stage).sum()
}

/// CPU seconds of all stages between their batches, by the metrics page of the service.
fn overhead(service: &Service, partner: &Partner) -> f64 {
    let page = partner.get(&format!("{}/metrics", service.origin())).text();
    let name = "photofinish_stage_overhead_cpu_seconds_total{";
    let values = page.lines().filter(|line| line.starts_with(name));
    values.map(|line| line.rsplit(' ').next().expect("a value").parse::<f64>().expect("a number")).sum()
}

/// CPU seconds of a process by the kernel: user and system.
fn cpu_of_process(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("a process");
    let fields: Vec<&str> =
        stat.rsplit(')').next().expect("fields after the name").split_whitespace().collect();
    let ticks = |place: usize| fields[place].parse::<f64>().expect("ticks");
    // 100 ticks a second on every Linux.
    (ticks(11) + ticks(12)) / 100.0
}

fn upload(partner: &Partner, album: &str, photos: usize) {
    let photo = TestPhoto::new(2400, 1600).with_face(1, [300, 300, 200]).with_bib("1204", [300, 700]);
    let photo = photo.to_jpeg();
    for place in 0..photos {
        partner.upload_photo(album, &format!("{place}.jpg"), &photo);
    }
}

#[test]
fn what_photos_cost_is_what_the_stages_spent() {
    const COMPUTING: [&str; 5] = ["decode", "resize", "detect", "embed", "read"];
    let options = ServiceOptions::with_fake_models()
        .with_setting("PHOTOFINISH_COST_PRICES", "cpu_hour=3600,device_hour=1,gb_month=1000000");
    let service = Service::start(options);
    let partner = service.partner();
    let album = partner.create_album("Costs");
    upload(&partner, &album, 24);
    partner.wait_until_idle(&album);
    let report = costs(&partner, &json!({ "albumId": album, "by": ["stage"] }));
    let rows = report["rows"].as_array().expect("rows");
    let of_stage = |stage: &str| -> f64 {
        let row = rows.iter().find(|row| row["stage"] == stage);
        row.map_or(0.0, |row| number(&row["cpuSeconds"]))
    };
    let charged: f64 = COMPUTING.iter().map(|stage| of_stage(stage)).sum();
    let spent = metered(&service, &partner, &COMPUTING);
    assert!(charged <= spent * 1.001 && charged > spent * 0.95, "{charged} of {spent} s: {report}");
    let all: f64 = rows.iter().map(|row| number(&row["cpuSeconds"])).sum();
    // With what they do between photos the meters of the threads are complete; the feed also looks for photos in vain.
    let stages = ["fetch", "decode", "resize", "detect", "embed", "read", "index"];
    let of_threads = metered(&service, &partner, &stages) + overhead(&service, &partner);
    let without_feed = all - of_stage("feed");
    assert!(of_stage("overhead") > 0.0, "{report}");
    assert!(
        without_feed <= of_threads * 1.001 && without_feed > of_threads * 0.98,
        "{without_feed} of {of_threads} s: {report}"
    );
    assert!(all <= cpu_of_process(service.process_id()), "{all} s: {report}");
    assert_eq!(report["photos"], 24);
    let per_photo = &report["perPhoto"];
    assert!((number(&per_photo["cpuSeconds"]) * 24.0 - all).abs() < 0.001, "{report}");
    // A CPU second costs 1.
    assert!((number(&per_photo["money"]) - number(&per_photo["cpuSeconds"])).abs() < 1e-5, "{report}");
    let fetched = rows.iter().find(|row| row["stage"] == "fetch").expect("a row");
    assert!(number(&fetched["bytesRead"]) > 24.0 * 1000.0, "{report}");
    let indexed = rows.iter().find(|row| row["stage"] == "index").expect("a row");
    assert!(number(&indexed["bytesWritten"]) > 24.0 * 1000.0, "{report}");

    let storage = &report["storage"];
    assert_eq!(storage["objects"], 24 * 3, "{report}");
    // Originals were read, and their pictures written, once.
    let stored = number(&fetched["bytesRead"]) + number(&indexed["bytesWritten"]);
    assert_eq!(number(&storage["bytes"]), stored, "{report}");
    // A gigabyte a month costs a million.
    assert!((number(&storage["money"]) * 1000.0 / number(&storage["bytes"]) - 1.0).abs() < 1e-9, "{report}");

    let (from, to) = (days()["from"].clone(), days()["to"].clone());
    let (from, to) = (from.as_str().expect("a day"), to.as_str().expect("a day"));
    let named =
        ["costs", "--organization", "Harbour Run", "--mode", "test", "--from", from, "--to", to, "--csv"];
    let shown = service.run(&named);
    let shown = shown.expect_success();
    let of_album = ["costs", "--album", &album, "--csv"];
    assert_eq!(service.run(&of_album).expect_success(), shown, "the owner of the album and all that is kept");
    let lines = service.run(&["costs", "--album", &album]);
    let lines = lines.expect_success();
    assert!(lines.lines().any(|line| line.starts_with("stored now: 72 objects, ")), "{lines}");
    assert!(shown.contains("stage,photos,cpu_s,device_s,read_bytes,written_bytes,money"), "{shown}");
    assert!(shown.lines().any(|line| line.starts_with("decode,24,")), "{shown}");
}

#[test]
fn killed_services_never_charge_more_than_they_spent() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Killed");
    upload(&partner, &album, 40);
    let mut spent = 0.0;
    for ready in [5, 15] {
        wait_until("some photos are ready", || {
            partner.album_progress(&album)["ready"].as_u64() >= Some(ready)
        });
        spent += cpu_of_process(service.process_id());
        service.kill();
        service.restart();
    }
    partner.wait_until_idle(&album);
    spent += cpu_of_process(service.process_id());
    let report = costs(&partner, &json!({ "albumId": album, "by": ["stage"] }));
    let charged: f64 =
        report["rows"].as_array().expect("rows").iter().map(|row| number(&row["cpuSeconds"])).sum();
    assert!(charged > 0.0 && charged <= spent, "{charged} of {spent} s: {report}");
    assert_eq!(report["photos"], 40, "{report}");
}
