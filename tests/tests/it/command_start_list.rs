//! `photofinish start-list`, on the command line.

use photofinish_tests::harness::{Service, ServiceOptions};

#[test]
fn a_list_in_the_encoding_of_a_spreadsheet_is_imported_shown_and_deleted() {
    let service = Service::start(ServiceOptions::with_fake_models());
    let partner = service.partner();
    let album = partner.create_album("Lists");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("list.csv");
    std::fs::write(&file, b"Dossard;\xc9quipe\r\n1207;Chamb\xe9ry\r\nDNS;\r\n1208;\r\n").expect("a file");
    let origin = service.origin();
    let run = |command: &str, more: &[&str]| {
        let arguments = ["start-list", command, "--url", &origin, "--key", partner.key(), "--album", &album];
        service.run(&[&arguments[..], more].concat())
    };
    let path = file.to_string_lossy().into_owned();
    let checked = run("check", &[&path]);
    assert!(checked.expect_success().contains("1 rows refused"), "{}", checked.expect_success());
    let imported = run("import", &[&path]);
    let printed = imported.expect_success();
    assert!(printed.contains("2 bibs: 2 added") && printed.contains("line 3"), "{printed}");
    let entries = partner.call_ok("/albums/startlist/entries", &serde_json::json!({ "albumId": album }));
    assert_eq!(entries["entries"][0]["team"], "Chambéry");
    assert!(run("show", &[]).expect_success().contains("2 bibs"));
    run("delete", &[]).expect_success();
    assert!(run("show", &[]).expect_success().contains("0 bibs"));
    assert_eq!(run("import", &["/no/such/file"]).code, Some(1));
}
