//! The OpenAPI document: what it says, and (by schemathesis) that the running service keeps to it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{
    Service, ServiceOptions, read_variable, repository_root, run_command, skip_or_fail,
};
use serde_json::Value;

/// Every call of the partner contract.
const PATHS: [&str; 19] = [
    "/albums/create",
    "/albums/delete",
    "/albums/get",
    "/albums/list",
    "/albums/progress",
    "/albums/reprocess",
    "/albums/update",
    "/photos/photo/delete",
    "/photos/photo/get",
    "/photos/photo/list",
    "/photos/photo/retry",
    "/photos/photo/signed",
    "/photos/photo/signed/batch",
    "/photos/photo/success",
    "/photos/photo/success/batch",
    "/photos/search/face/list",
    "/photos/search/face/signed",
    "/photos/search/text/list",
    // Last, so that the rows above stay sorted: storage has no path of the contract, and is not in the document.
    "",
];

/// The statuses that every operation of the contract documents.
const STATUSES: [&str; 20] = [
    "200", "400", "401", "403", "404", "405", "406", "408", "409", "412", "413", "415", "422", "429", "499",
    "500", "501", "502", "503", "504",
];

#[test]
fn the_document_describes_every_call_of_the_contract() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let answer = service.partner().get(&format!("{}/openapi/openapi.json", service.origin()));
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    let document = answer.json();
    assert_eq!(document["openapi"], "3.1.1");
    assert_eq!(document["info"]["version"], "1.0.0");
    let paths = document["paths"].as_object().expect("paths");
    let described: BTreeSet<&str> = paths.keys().map(String::as_str).collect();
    for path in PATHS.iter().filter(|path| !path.is_empty()) {
        assert!(described.contains(path), "{path} is not in {described:?}");
        let operation = &paths[*path]["post"];
        assert!(operation["operationId"].is_string(), "{path}");
        let statuses: BTreeSet<&str> =
            operation["responses"].as_object().expect("responses").keys().map(String::as_str).collect();
        for status in STATUSES {
            assert!(statuses.contains(status), "{path} does not document {status}: {statuses:?}");
        }
    }
    assert_eq!(paths["/albums/create"]["post"]["operationId"], "albums.create");
    let schemes = document["components"]["securitySchemes"].as_object().expect("a security scheme");
    let key =
        schemes.values().any(|s| s["type"] == "apiKey" && s["in"] == "header" && s["name"] == "x-api-key");
    assert!(key, "{schemes:?}");
    check_references(&document, &document);
}

/// Every `$ref` leads somewhere.
fn check_references(document: &Value, part: &Value) {
    match part {
        Value::Object(object) => {
            if let Some(reference) = object.get("$ref").and_then(Value::as_str) {
                let pointer = reference.strip_prefix('#').expect("a reference into the document");
                assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
            }
            object.values().for_each(|value| check_references(document, value));
        }
        Value::Array(array) => array.iter().for_each(|value| check_references(document, value)),
        _ => {}
    }
}

#[test]
fn the_readable_page_works_without_the_internet() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let page = service.partner().get(&format!("{}/openapi/docs", service.origin()));
    assert_eq!(page.status, 200, "{}", page.text());
    assert!(page.header("content-type").is_some_and(|kind| kind.starts_with("text/html")));
    let html = page.text();
    for loads in ["src=\"http", "src='http", "href=\"http", "src=\"//", "@import", "url(http"] {
        assert!(!html.contains(loads), "the page loads from elsewhere: {loads}");
    }
    assert!(html.contains("/albums/create") || html.contains("openapi.json"), "the page shows the calls");
}

#[test]
fn the_running_service_matches_its_openapi_document() {
    const TEST: &str = "the_running_service_matches_its_openapi_document";
    let schemathesis = read_variable("PHOTOFINISH_TEST_SCHEMATHESIS")
        .map_or_else(|| repository_root().join(".photofinish/venv-test/bin/schemathesis"), PathBuf::from);
    if !schemathesis.is_file() {
        return skip_or_fail(
            TEST,
            &format!("{} is not there: run `cargo xtask test`", schemathesis.display()),
        );
    }
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Fuzzed");
    partner.upload_photo(
        &album,
        "a.jpg",
        &TestPhoto::new(600, 400).with_face(1, [200, 60, 110]).with_bib("1204", [200, 250]).to_jpeg(),
    );
    partner.wait_until_idle(&album);
    let folder = tempfile::tempdir().expect("a folder");
    let configuration = repository_root().join("tests/schemathesis.toml");
    let output = run_command(
        Command::new(schemathesis)
            .current_dir(folder.path())
            .arg("--config-file")
            .arg(configuration)
            .args(["run", &format!("{}/openapi/openapi.json", service.origin())])
            .args(["--header", &format!("x-api-key:{}", partner.key())])
            .args(["--url", &format!("{}/openapi", service.origin())]),
    );
    println!("{}", output.combined_output());
    assert_eq!(output.code, Some(0), "schemathesis found a difference, see above");
    assert!(!service.log().contains("panicked"), "{}", service.log());
    partner.call_ok("/albums/list", &serde_json::json!({}));
}
