//! The oRPC client from npm against the running service: `tests/orpc/run.mjs`.

use std::path::PathBuf;
use std::process::Command;

use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{
    ALL_SCOPES, Service, ServiceOptions, read_variable, repository_root, run_command, skip_or_fail,
};

#[test]
fn the_real_orpc_client_understands_every_answer() {
    const TEST: &str = "the_real_orpc_client_understands_every_answer";
    let modules = read_variable("PHOTOFINISH_TEST_NODE_MODULES")
        .map_or_else(|| repository_root().join(".photofinish/node/node_modules"), PathBuf::from);
    if !modules.join("@orpc/client/package.json").is_file() {
        let why = format!("no @orpc/client in {}: run `cargo xtask test`", modules.display());
        return skip_or_fail(TEST, &why);
    }
    if !has_node() {
        return skip_or_fail(TEST, "no Node.js 20 or newer on this machine, on which the client runs");
    }
    let service =
        Service::start(ServiceOptions::with_fake_models().with_setting("PHOTOFINISH_CREDITS", "on"));
    let limited = ["key", "create", "--organization", "Limited", "--mode", "test", "--limit", "read=2"];
    let limited = service.run(&[&limited[..], &["--scope", "search:read"]].concat());
    // Node searches packages beside the program, so the program runs from a folder that has them.
    let folder = tempfile::tempdir().expect("a folder");
    let program = repository_root().join("tests/orpc");
    for file in ["run.mjs", "contract.mjs"] {
        std::fs::copy(program.join(file), folder.path().join(file))
            .expect("the program is in the repository");
    }
    std::os::unix::fs::symlink(modules, folder.path().join("node_modules")).expect("a link");
    let (photo, selfie) = (folder.path().join("photo.jpg"), folder.path().join("selfie.jpg"));
    std::fs::write(
        &photo,
        TestPhoto::new(1200, 800).with_face(1, [200, 150, 120]).with_bib("1204", [750, 450]).to_jpeg(),
    )
    .expect("a file");
    std::fs::write(&selfie, TestPhoto::selfie(1).to_jpeg()).expect("a file");
    let output = run_command(
        Command::new("node")
            .arg(folder.path().join("run.mjs"))
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

fn has_node() -> bool {
    let check = "process.exit(Number(process.versions.node.split('.')[0]) < 20 ? 1 : 0)";
    Command::new("node").args(["-e", check]).status().is_ok_and(|status| status.success())
}
