//! Health and metrics, for operators: they are not part of the contract.

use photofinish_tests::harness::{
    Service, ServiceOptions, SharedService, SharedServiceRef, free_port, wait_until,
};

use serde_json::json;

use crate::end_to_end::finish_photo;

static GROUP: SharedService = SharedService::new();

fn service() -> SharedServiceRef {
    GROUP.get_or_start(ServiceOptions::with_fake_models)
}

#[test]
fn health_and_metrics_are_served_beside_the_api() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Metrics");
    partner.upload_photo(&album, "a.jpg", &finish_photo().to_jpeg());
    partner.wait_until_idle(&album);
    assert_eq!(partner.get(&format!("{}/healthz", service.origin())).status, 200);
    assert_eq!(partner.get(&format!("{}/readyz", service.origin())).status, 200);
    let metrics = partner.get(&format!("{}/metrics", service.origin()));
    assert_eq!(metrics.status, 200);
    assert!(
        metrics.header("content-type").is_some_and(|kind| kind.starts_with("text/plain")),
        "{:?}",
        metrics.headers
    );
    let lines = metrics.text();
    assert!(lines.lines().any(|line| line.starts_with("photofinish_")), "{lines}");
    assert!(!lines.contains(&album), "labels never come from input");
}

#[test]
fn every_metric_named_total_is_a_counter() {
    let service = service();
    let partner = service.partner();
    let album = partner.create_album("Counters");
    partner.upload_photo(&album, "a.jpg", &finish_photo().to_jpeg());
    partner.wait_until_idle(&album);
    let page = partner.get(&format!("{}/metrics", service.origin())).text();
    let is_total = |line: &&str| line.split(' ').nth(2).is_some_and(|name| name.ends_with("_total"));
    let types: Vec<&str> = page.lines().filter(|line| line.starts_with("# TYPE ")).filter(is_total).collect();
    assert!(types.iter().any(|line| line.contains("photofinish_stage_cpu_seconds_total")), "{page}");
    assert!(types.iter().all(|line| line.ends_with(" counter")), "{types:?}");
}

#[test]
fn the_waiting_time_of_photos_is_measured() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Waits");
    partner.upload_photo(&album, "a.jpg", &finish_photo().to_jpeg());
    partner.wait_until_idle(&album);
    let page = || partner.get(&format!("{}/metrics", service.origin())).text();
    // Counted a moment after the photo is listed as ready.
    wait_until("the photo is counted", || {
        page().lines().any(|line| line == "photofinish_confirm_to_searchable_seconds_count 1")
    });
    let metrics = page();
    // A photo may wait for hours behind a large event: the buckets must cover that.
    assert!(metrics.contains("photofinish_confirm_to_searchable_seconds_bucket{le=\"21600\"}"), "{metrics}");
    for gauge in ["photofinish_queue_depth ", "photofinish_queue_age_seconds "] {
        assert!(metrics.lines().any(|line| line.starts_with(gauge)), "no {gauge}in {metrics}");
    }
}

/// An alert on the increase of a counter misses the first event when the counter only appears with it.
#[test]
fn counters_of_alerts_are_exported_as_0_from_the_start() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let page = service.partner().get(&format!("{}/metrics", service.origin())).text();
    for counter in [
        "photofinish_photos_failed_total{reason=\"CORRUPT_IMAGE\"}",
        "photofinish_photos_failed_total{reason=\"PROCESSING_CRASHED\"}",
        "photofinish_photos_finished_total",
        "photofinish_stage_panics_total{stage=\"decode\"}",
        "photofinish_outages_total{part=\"storage\"}",
        "photofinish_outages_total{part=\"models\"}",
        "photofinish_leases_lost_total",
    ] {
        assert!(page.lines().any(|line| line == format!("{counter} 0")), "no {counter} at 0 in {page}");
    }
}

#[test]
fn the_console_moves_to_its_own_address_when_there_is_one() {
    let console = format!("127.0.0.1:{}", free_port());
    let options = ServiceOptions::with_fake_models()
        .with_setting("PHOTOFINISH_CONSOLE_LISTEN", &console)
        .with_setting("PHOTOFINISH_CONSOLE_URL", format!("http://{console}"));
    let service = Service::start(options);
    let partner = service.partner();
    let at = |origin: &str, path: &str| partner.get(&format!("{origin}{path}")).status;
    let (api, console) = (service.origin(), format!("http://{console}"));
    assert_eq!((at(&console, "/console/albums"), at(&api, "/console/albums")), (200, 404));
    assert_eq!(
        (at(&console, "/g/aaaaaaaaaaaaaaaaaaaaaa"), at(&api, "/g/aaaaaaaaaaaaaaaaaaaaaa")),
        (404, 200)
    );
    // Its pages show it too, and load pictures of their own host alone.
    let qr_code = "/g/aaaaaaaaaaaaaaaaaaaaaa/qr.svg";
    assert_eq!((at(&console, qr_code), at(&api, qr_code)), (200, 200));
    // What no page of this host sends is refused where there are operations.
    assert_eq!((at(&console, "/console/api/session/get"), at(&api, "/console/api/session/get")), (403, 404));
    assert_eq!((at(&console, "/openapi/openapi.json"), at(&api, "/openapi/openapi.json")), (404, 200));
    let account = ["--organization", "Lake Timing", "--email", "anna@race.example", "--role", "owner"];
    let invited = service.run(&[&["account", "invite"], &account[..]].concat());
    let link = invited.expect_success();
    assert!(link.contains(&format!("{console}/console/welcome/")), "{link}");
}

#[test]
fn health_moves_to_its_own_address_when_there_is_one() {
    let admin = format!("127.0.0.1:{}", free_port());
    let service =
        Service::start(ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_ADMIN_LISTEN", &admin));
    let partner = service.partner();
    assert_eq!(partner.get(&format!("http://{admin}/readyz")).status, 200);
    assert_eq!(partner.get(&format!("http://{admin}/metrics")).status, 200);
    partner.get(&format!("{}/metrics", service.origin())).expect_defined_error(404);
    partner.call_ok("/albums/list", &json!({}));
}
