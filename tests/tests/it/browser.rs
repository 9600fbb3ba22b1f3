//! The console and a gallery in a real browser, with real networks and the drawn sample event: `tests/browser/run.mjs`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use photofinish_tests::harness::test_photo::TestPhoto;
use photofinish_tests::harness::{
    ALL_SCOPES, Service, ServiceOptions, read_variable, repository_root, run_command, skip_or_fail,
    variable_or_installed_path,
};
use photofinish_tests::scenes::drawn_event::write_drawn_photos;
use photofinish_tests::scenes::event;
use serde_json::json;

/// One photo of each group of runners, and of each image format.
const PHOTOS: usize = 6;
/// Photos of runners who are drawn.
const DRAWN_PHOTOS: usize = 14;
/// Debian's browser.
const CHROMIUM: &str = "/usr/bin/chromium";
/// A video of one picture: the browser's camera shows it for ever.
const FRAMES: usize = 10;
/// How long a program may drive the browser, seconds. Then it is ended, and killed if it goes on.
const BROWSER_SECONDS: &str = "600";
const KILL_AFTER_SECONDS: &str = "--kill-after=20";

#[test]
fn organizers_and_runners_use_it_in_a_real_browser() {
    const TEST: &str = "organizers_and_runners_use_it_in_a_real_browser";
    let modules = variable_or_installed_path("PHOTOFINISH_TEST_NODE_MODULES", "node/node_modules");
    let portraits = variable_or_installed_path("PHOTOFINISH_TEST_PORTRAITS", "portraits");
    let pages = repository_root().join(".photofinish/console/files");
    for (needed, what) in [
        (modules.join("playwright-core/package.json"), "the driver of the browser"),
        (PathBuf::from(CHROMIUM), "the browser"),
        (portraits.clone(), "the portraits of the sample event"),
        (pages.join("console.html"), "the pages of the console"),
    ] {
        if !needed.exists() {
            let why = format!("{what} is missing, {}: run `cargo xtask test`", needed.display());
            return skip_or_fail(TEST, &why);
        }
    }
    let options = match ServiceOptions::with_real_models() {
        // What set-up has built now, whenever the program was built.
        Ok(options) => options.with_setting("PHOTOFINISH_CONSOLE_DIR", pages.to_string_lossy()),
        Err(why) => return skip_or_fail(TEST, &why),
    };
    let options = options
        .with_setting("PHOTOFINISH_COST_PRICES", "cpu_hour=0.04")
        .with_setting("PHOTOFINISH_WEBHOOK_HTTP", "on")
        .with_setting("PHOTOFINISH_WEBHOOK_ALLOW", "127.0.0.1/32");
    let service = Service::start(options);
    let folder = tempfile::tempdir().expect("a folder");
    let truth = event::write_event(folder.path(), &portraits, PHOTOS).expect("an event");
    let runner = truth.runners.first().expect("a runner");
    let selfie = folder.path().join(event::SELFIES_FOLDER).join(&runner.selfie);
    let camera = folder.path().join("camera.mjpeg");
    std::fs::write(&camera, std::fs::read(&selfie).expect("a selfie").repeat(FRAMES)).expect("a video");
    let account = ["--organization", "Lake Timing", "--email", "anna@race.example"];
    let invited =
        service.run(&[&["account", "invite", "--role", "owner", "--operator"], &account[..]].concat());
    let drawn = DrawnAlbum::upload(&service);
    copy_program(folder.path(), &modules);
    let output = keep_running(&service, || {
        let mut program = browser_program(&folder.path().join("run.mjs"));
        program
            .env("BASE_URL", service.origin())
            .env("WELCOME", invited.expect_success().trim())
            .env("PHOTOS", folder.path().join(event::PHOTOS_FOLDER))
            .env("BIB", &runner.bib)
            .env("CAMERA", camera)
            .env("SERVICE_PID", service.process_id().to_string())
            .env("CHROMIUM", CHROMIUM)
            .env("ENTER", drawn.enter)
            .env("DRAWN_ALBUM", drawn.album)
            .env("DRAWN_BIB", drawn.bib)
            .env("SCREENS", screens());
        run_command(&mut program)
    });
    if output.code != Some(0) {
        println!("{}", service.log());
    }
    println!("{}", output.expect_success());
}

/// An album whose runners are drawn, of an organization of its own: what pages are pictured with.
struct DrawnAlbum {
    album: String,
    /// Of a runner who is in several photos.
    bib: String,
    /// Signs in its owner, once.
    enter: String,
}

impl DrawnAlbum {
    const ORGANIZATION: &str = "City Marathon";
    const EMAIL: &str = "mia@race.example";

    fn upload(service: &Service) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let photos = write_drawn_photos(folder.path(), DRAWN_PHOTOS).expect("photos");
        let account = ["--organization", Self::ORGANIZATION, "--email", Self::EMAIL];
        service.run(&[&["account", "invite", "--role", "owner", "--operator"], &account[..]].concat());
        let key = service.create_key_for(Self::ORGANIZATION, &ALL_SCOPES, "test");
        let partner = service.partner_with(&key);
        let album = partner.create_album("City Marathon 2026");
        for photo in &photos {
            let bytes = std::fs::read(folder.path().join(&photo.file)).expect("a photo");
            partner.upload_photo(&album, &photo.file, &bytes);
        }
        // Something to see among the failures.
        partner.upload_photo(&album, "LAKE_0099.jpg", b"\xff\xd8\xff a photo that was cut off");
        partner.wait_until_idle(&album);
        let count = |bib: &String| photos.iter().filter(|photo| photo.bibs.contains(bib)).count();
        let bib = photos.iter().flat_map(|photo| &photo.bibs).max_by_key(|bib| count(bib));
        let bib = bib.expect("a runner").clone();
        let enter =
            service.run(&["account", "link", "--email", Self::EMAIL]).expect_success().trim().to_owned();
        Self { album, bib, enter }
    }
}

/// Node with a program that drives the browser, which is ended if it takes too long.
fn browser_program(path: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args([KILL_AFTER_SECONDS, BROWSER_SECONDS, "node"]).arg(path);
    command
}

/// Is true once this is dropped, also by a panic.
struct Done<'f>(&'f AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Starts the service again, as a supervisor does, whenever it has ended while `work` is done.
fn keep_running<T>(service: &Service, work: impl FnOnce() -> T) -> T {
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Ordering::Relaxed) {
                if service.has_exited() {
                    service.spawn();
                }
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        // The scope waits for the supervisor, whichever way the work ends.
        let _done = Done(&is_done);
        work()
    })
}

/// How long the slow stage takes for a photo, and how many photos keep it at work while the page is looked at.
const SLOW_READ_MS: &str = "700";
const SLOW_PHOTOS: usize = 120;

#[test]
fn the_bottleneck_is_lit_while_a_stage_is_slow() {
    const TEST: &str = "the_bottleneck_is_lit_while_a_stage_is_slow";
    let modules = variable_or_installed_path("PHOTOFINISH_TEST_NODE_MODULES", "node/node_modules");
    let pages = repository_root().join(".photofinish/console/files");
    for needed in
        [&modules.join("playwright-core/package.json"), &pages.join("console.html"), Path::new(CHROMIUM)]
    {
        if !needed.exists() {
            return skip_or_fail(TEST, &format!("{} is missing: run `cargo xtask test`", needed.display()));
        }
    }
    let options = ServiceOptions::with_fake_models()
        .with_setting("PHOTOFINISH_CONSOLE_DIR", pages.to_string_lossy())
        .with_setting("PHOTOFINISH_FAKE_DELAY_MS", SLOW_READ_MS);
    let service = Service::start(options);
    let account = ["--organization", "Slow Timing", "--email", "bea@race.example"];
    service.run(&[&["account", "invite", "--role", "owner"], &account[..]].concat()).expect_success();
    let partner = service.partner_with(&service.create_key_for("Slow Timing", &ALL_SCOPES, "test"));
    let album = partner.create_album("Slow");
    let jpeg = TestPhoto::new(300, 200).with_bib("1204", [50, 50]).to_jpeg();
    for number in 0..SLOW_PHOTOS {
        partner.upload_photo(&album, &format!("{number}.jpg"), &jpeg);
    }
    let entered = service.run(&["account", "link", "--email", "bea@race.example"]);
    let folder = tempfile::tempdir().expect("a folder");
    copy_program(folder.path(), &modules);
    let mut program = browser_program(&folder.path().join("bottleneck.mjs"));
    program
        .env("BASE_URL", service.origin())
        .env("ENTER", entered.expect_success().trim())
        .env("ALBUM", album)
        .env("STAGE", "Read bibs")
        .env("CHROMIUM", CHROMIUM);
    println!("{}", run_command(&mut program).expect_success());
}

/// TypeScript's compiler, over the sources as they are in the repository.
#[test]
fn the_pages_have_no_type_errors() {
    const TEST: &str = "the_pages_have_no_type_errors";
    let modules = variable_or_installed_path("PHOTOFINISH_TEST_NODE_MODULES", "node/node_modules");
    let libraries = repository_root().join(".photofinish/console-tools/node_modules");
    let compiler = modules.join("typescript/bin/tsc");
    for needed in [&compiler, &libraries.join("preact/package.json")] {
        if !needed.exists() {
            return skip_or_fail(TEST, &format!("{} is missing: run `cargo xtask test`", needed.display()));
        }
    }
    let sources = repository_root().join("api/console/web");
    let library = |name: &str| vec![libraries.join(name)];
    let settings = json!({
        "extends": sources.join("tsconfig.json"),
        "include": [sources.join("**/*.ts"), sources.join("**/*.tsx")],
        "compilerOptions": { "paths": {
            "preact": library("preact"),
            "preact/*": library("preact/*"),
            "@preact/signals": library("@preact/signals"),
            "@preact/signals-core": library("@preact/signals-core"),
        } },
    });
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tsconfig.json");
    std::fs::write(&file, settings.to_string()).expect("a file");
    run_command(Command::new("node").arg(compiler).arg("--project").arg(file)).expect_success();
}

/// Where pictures of the pages go. Those in `docs/screens` were made by this test.
fn screens() -> PathBuf {
    read_variable("PHOTOFINISH_TEST_SCREENS")
        .map_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("screens"), PathBuf::from)
}

/// Node searches packages beside the program, so the program runs from a folder that has them.
fn copy_program(folder: &Path, modules: &Path) {
    let program =
        repository_root().join("tests/browser").read_dir().expect("the program is in the repository");
    for file in program {
        let path = file.expect("a file").path();
        std::fs::copy(&path, folder.join(path.file_name().expect("a name"))).expect("copied");
    }
    std::os::unix::fs::symlink(modules, folder.join("node_modules")).expect("a link");
}
