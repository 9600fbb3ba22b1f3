//! The oRPC client from npm against the running service: once as a partner's program that knows the contract alone
//! (`tests/orpc/partner.mjs`), once with every operation (`tests/orpc/run.mjs`).

use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{ALL_SCOPES, NpmProgram, Service, ServiceOptions, run_command};

/// Runs the program against a service that has a gallery to open and webhooks to send to.
fn run(program: &NpmProgram) {
    let options = ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_CREDITS", "on");
    let service = Service::start(options);
    let limited = ["key", "create", "--organization", "Limited", "--mode", "test", "--limit", "read=2"];
    let limited = service.run(&[&limited[..], &["--scope", "search:read"]].concat());
    let (photo, selfie) = (program.folder().join("photo.jpg"), program.folder().join("selfie.jpg"));
    std::fs::write(
        &photo,
        TestPhoto::new(1200, 800).with_face(1, [200, 150, 120]).with_bib("1204", [750, 450]).to_jpeg(),
    )
    .expect("a file");
    std::fs::write(&selfie, TestPhoto::selfie(1).to_jpeg()).expect("a file");
    let output = run_command(
        program
            .command()
            .env("BASE_URL", format!("{}/openapi", service.origin()))
            .env("KEY", service.partner().key())
            .env("POOR_KEY", service.create_key_for("Poor", &ALL_SCOPES, "test"))
            .env("LIMITED_KEY", limited.expect_success().trim())
            .env("NARROW_KEY", service.create_key(&["search:read"], "test"))
            .env("PHOTO", photo)
            .env("SELFIE", selfie)
            .env("BIB", "1204"),
    );
    println!("{}", output.expect_success());
}

#[test]
fn a_program_that_knows_the_contract_alone_works() {
    const TEST: &str = "a_program_that_knows_the_contract_alone_works";
    let files = ["partner.mjs", "partner-contract.mjs", "tools.mjs"];
    let Some(program) = NpmProgram::prepare(TEST, "@orpc/client", &files) else { return };
    run(&program);
}

#[test]
fn the_real_orpc_client_understands_every_answer() {
    const TEST: &str = "the_real_orpc_client_understands_every_answer";
    let files = ["run.mjs", "contract.mjs", "tools.mjs"];
    let Some(program) = NpmProgram::prepare(TEST, "@orpc/client", &files) else { return };
    run(&program);
}
