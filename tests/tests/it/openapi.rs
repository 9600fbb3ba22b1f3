//! That the running service matches its OpenAPI document, checked by schemathesis.

use std::path::PathBuf;
use std::process::Command;

use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{
    Service, ServiceOptions, read_variable, repository_root, run_command, skip_or_fail,
};

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
