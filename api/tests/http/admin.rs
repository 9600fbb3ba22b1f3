//! Health and metrics.

use photofinish_api::context::{Part, PartState};
use serde_json::json;
use tokio::net::TcpListener;

use crate::support::{Partner, Service};

fn stranger(service: &Service) -> Partner {
    Partner::new(service, None)
}

#[test]
fn health_needs_no_key() {
    let service = Service::start();
    let caller = stranger(&service);
    assert_eq!(caller.send("GET /healthz", &[], "").ok(), json!({ "alive": true }));
    let metrics = caller.send("GET /metrics", &[], "");
    assert_eq!(metrics.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(metrics.bytes, b"photofinish_test_total 1\n");
    let answer = caller.send("POST /healthz", &[], "");
    assert_eq!(answer.header("allow"), "GET, HEAD, OPTIONS");
    answer.defined(405, "METHOD_NOT_SUPPORTED");
}

#[test]
fn readiness_names_every_part_that_does_not_serve() {
    let service = Service::start();
    let caller = stranger(&service);
    assert_eq!(caller.send("GET /readyz", &[], "").ok()["ready"], json!(true));
    let state = PartState::Down("no runtime library".to_owned());
    service.health.parts.lock().unwrap()[1] = Part { name: "models", state };
    let answer = caller.send("GET /readyz", &[], "");
    assert_eq!(answer.status, 503);
    let parts = json!([
        { "name": "database", "state": "running" },
        { "name": "models", "state": "down", "reason": "no runtime library" },
    ]);
    assert_eq!(answer.json(), json!({ "ready": false, "parts": parts }));
}

#[test]
fn readiness_is_false_from_the_moment_the_service_leaves() {
    let service = Service::start();
    service.draining.begin();
    let answer = stranger(&service).send("GET /readyz", &[], "");
    assert_eq!((answer.status, &answer.json()["parts"][0]["state"]), (503, &json!("draining")));
    assert_eq!(stranger(&service).send("GET /healthz", &[], "").status, 200);
}

#[test]
fn health_may_have_a_port_of_its_own() {
    let service = Service::with(|settings| settings.admin_here = false);
    let caller = stranger(&service);
    caller.send("GET /healthz", &[], "").defined(404, "NOT_FOUND");
    let listener = service.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let context = service.context.clone();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let served = service.runtime.spawn(async move {
        photofinish_api::serve_admin(listener, context, async { drop(stopped.await) }).await;
    });
    assert_eq!(caller.send(&format!("GET {origin}/readyz"), &[], "").status, 200);
    caller.send(&format!("POST {origin}/openapi/albums/list"), &[], "").defined(404, "NOT_FOUND");
    stop.send(()).unwrap();
    service.block_on(served).unwrap();
}
