//! The admin endpoints: health, readiness and metrics.

use photofinish_api::context::{ComponentHealth, ComponentState};
use serde_json::json;
use tokio::net::TcpListener;

use crate::support::{Partner, TestService};

fn caller_without_key(service: &TestService) -> Partner {
    Partner::new(service, None)
}

#[test]
fn health_needs_no_key() {
    let service = TestService::start();
    let caller = caller_without_key(&service);
    assert_eq!(caller.send("GET /healthz", &[], "").ok(), json!({ "alive": true }));
    let metrics = caller.send("GET /metrics", &[], "");
    assert_eq!(metrics.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    assert_eq!(metrics.bytes, b"photofinish_test_total 1\n");
    let response = caller.send("POST /healthz", &[], "");
    assert_eq!(response.header("allow"), "GET, HEAD, OPTIONS");
    response.defined_error(405, "METHOD_NOT_SUPPORTED");
}

#[test]
fn readiness_names_every_component_that_is_down() {
    let service = TestService::start();
    let caller = caller_without_key(&service);
    assert_eq!(caller.send("GET /readyz", &[], "").ok()["ready"], json!(true));
    let state = ComponentState::Down("no runtime library".to_owned());
    service.health.parts.lock().unwrap()[1] = ComponentHealth { name: "models", state };
    let response = caller.send("GET /readyz", &[], "");
    assert_eq!(response.status, 503);
    let parts = json!([
        { "name": "database", "state": "running" },
        { "name": "models", "state": "down", "reason": "no runtime library" },
    ]);
    assert_eq!(response.json(), json!({ "ready": false, "parts": parts }));
}

#[test]
fn readiness_is_false_as_soon_as_the_service_drains() {
    let service = TestService::start();
    service.draining.begin();
    let response = caller_without_key(&service).send("GET /readyz", &[], "");
    assert_eq!((response.status, &response.json()["parts"][0]["state"]), (503, &json!("draining")));
    assert_eq!(caller_without_key(&service).send("GET /healthz", &[], "").status, 200);
}

#[test]
fn health_may_have_a_port_of_its_own() {
    let service = TestService::start_with(|settings| settings.admin_on_api_port = false);
    let caller = caller_without_key(&service);
    caller.send("GET /healthz", &[], "").defined_error(404, "NOT_FOUND");
    let listener = service.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let context = service.context.clone();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let served = service.runtime.spawn(async move {
        photofinish_api::serve_admin(listener, context, async { drop(stopped.await) }).await;
    });
    assert_eq!(caller.send(&format!("GET {origin}/readyz"), &[], "").status, 200);
    caller.send(&format!("POST {origin}/openapi/albums/list"), &[], "").defined_error(404, "NOT_FOUND");
    stop.send(()).unwrap();
    service.block_on(served).unwrap();
}
