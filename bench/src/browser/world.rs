//! A service of the measurement: an organization with an owner, and albums, on a temporary folder. It can be stopped and started
//! again, because a SQLite file belongs to one process and large albums are put into it directly.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use photofinish_client::{Client, ClientOptions};
use photofinish_launcher::{ALL_SCOPES, Installation, ServiceProcess};
use photofinish_servers::free_port;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::paths::{InputPaths, state_dir};

/// The longest start: models are loaded in it.
const START_TIMEOUT: Duration = Duration::from_secs(120);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

const ORGANIZATION: &str = "bench";
const OWNER: &str = "bench@race.example";

/// A service with an owner. Stopped when dropped.
pub struct World {
    process: Option<ServiceProcess>,
    role: &'static str,
    port: u16,
    installation: Installation,
    client: Client,
    // Last: the folder must outlive what writes into it.
    folder: TempDir,
}

impl World {
    /// Starts a service in this role, with an empty data folder.
    ///
    /// # Errors
    /// When the binary or the pages are missing, or the service does not become ready.
    pub fn start(paths: &InputPaths, role: &'static str) -> anyhow::Result<Self> {
        let pages = state_dir().join("console").join("files");
        anyhow::ensure!(pages.is_dir(), "{} does not exist; `cargo xtask setup` fills it", pages.display());
        let folder = tempfile::Builder::new().prefix("photofinish-bench-").tempdir()?;
        let port = free_port();
        let origin = format!("http://127.0.0.1:{port}");
        std::fs::create_dir(folder.path().join("data"))?;
        let installation = Installation::new(paths.find_or_build_binary(&[])?, &folder.path().join("data"))
            .isolated()
            .with_setting("PHOTOFINISH_ONNXRUNTIME", paths.find_runtime()?)
            .with_setting("PHOTOFINISH_MODELS_DIR", paths.find_models_dir()?)
            .with_setting("PHOTOFINISH_CONSOLE_DIR", pages)
            .with_setting("PHOTOFINISH_PUBLIC_URL", &origin);
        let key = installation.create_key(ORGANIZATION, "test", &ALL_SCOPES)?;
        let client = Client::new(&origin, &key, ClientOptions::default());
        let mut world = Self { process: None, role, port, installation, client, folder };
        world.start_again()?;
        let invite =
            ["account", "invite", "--organization", ORGANIZATION, "--email", OWNER, "--role", "owner"];
        world.installation.run(invite)?;
        Ok(world)
    }

    /// Starts it after a stop.
    ///
    /// # Errors
    /// When it does not become ready; the end of its log is in the error.
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        let log = self.folder.path().join("service.log");
        let mut process = self.installation.start(self.role, self.port, &log)?;
        process.wait_until_ready(START_TIMEOUT)?;
        self.process = Some(process);
        Ok(())
    }

    /// Stops it.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        match self.process.take() {
            Some(mut process) => process.terminate(STOP_TIMEOUT).map(|_| ()),
            None => Ok(()),
        }
    }

    /// A partner with all scopes.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Where its pages are.
    pub fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Its data folder.
    pub fn data_dir(&self) -> &Path {
        self.installation.data_dir()
    }

    /// A command of the same binary.
    pub fn command(&self, arguments: &[&str]) -> std::process::Command {
        self.installation.command(arguments)
    }

    /// A link that signs the owner in, once.
    ///
    /// # Errors
    /// When the command fails.
    pub fn link_of_owner(&self) -> anyhow::Result<String> {
        let output = self.installation.run(["account", "link", "--email", OWNER])?;
        Ok(output.expect_success().trim().to_owned())
    }

    /// Calls an operation as the partner.
    ///
    /// # Errors
    /// When the service answers with an error.
    pub fn call(&self, operation: &str, input: &Value) -> anyhow::Result<Value> {
        let target = format!("/openapi/{operation}");
        let headers = [("x-api-key", self.client.key()), ("content-type", "application/json")];
        let response = self.client.raw("POST", &target, &headers, input.to_string().as_bytes())?;
        anyhow::ensure!(response.status == 200, "{operation}: {}", response.text());
        serde_json::from_slice(&response.body).with_context(|| format!("{operation}: no JSON"))
    }

    /// Opens the gallery of an album for searches by bib; returns its link.
    ///
    /// # Errors
    /// When the service answers with an error.
    pub fn open_gallery(&self, album: &str) -> anyhow::Result<String> {
        let settings = json!({ "albumId": album, "enabled": true, "searchesPerVisitor": 10_000 });
        let gallery = self.call("albums/gallery/update", &settings)?;
        Ok(gallery["url"].as_str().context("a gallery has a link")?.to_owned())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("{error:#}");
        }
    }
}

/// Draws photos of a race into a folder: painted runners, as the pictures of the documentation show them. Returns their files,
/// sorted, and the bib that is in most of them.
///
/// # Errors
/// When the font of the bibs is missing.
pub fn draw_photos(folder: &Path, count: usize) -> anyhow::Result<(Vec<String>, String)> {
    let photos = photofinish_tests::scenes::drawn_event::write_drawn_photos(folder, count)?;
    let mut photos_of = std::collections::BTreeMap::<&String, usize>::new();
    for bib in photos.iter().flat_map(|photo| &photo.bibs) {
        *photos_of.entry(bib).or_default() += 1;
    }
    let most = photos_of.iter().max_by_key(|(_, count)| **count).context("photos show runners")?;
    let bib = (*most.0).clone();
    Ok((photos.into_iter().map(|photo| photo.file).collect(), bib))
}

/// The browser's program in a folder of its own, where Node.js finds the packages beside it.
pub struct Program {
    folder: TempDir,
    chromium: PathBuf,
}

impl Program {
    /// Copies it.
    ///
    /// # Errors
    /// When the browser or its driver is not installed.
    pub fn prepare(chromium: &Path, modules: &Path) -> anyhow::Result<Self> {
        for needed in [chromium, &modules.join("playwright-core")] {
            anyhow::ensure!(
                needed.exists(),
                "{} does not exist; `cargo xtask test` installs it",
                needed.display()
            );
        }
        let folder = tempfile::tempdir()?;
        for file in crate::paths::root().join("bench").join("browser").read_dir()? {
            let file = file?;
            std::fs::copy(file.path(), folder.path().join(file.file_name()))?;
        }
        std::os::unix::fs::symlink(std::path::absolute(modules)?, folder.path().join("node_modules"))?;
        Ok(Self { folder, chromium: chromium.to_owned() })
    }

    /// Runs one of its measurements; returns what it printed: `browser`, the version, and `measured`.
    ///
    /// # Errors
    /// When it fails, with what it wrote to standard error.
    pub fn measure(&self, what: &str, variables: &[(&str, &str)]) -> anyhow::Result<Value> {
        let mut node = std::process::Command::new("node");
        node.arg(self.folder.path().join("measure.mjs")).arg(what);
        node.env("CHROMIUM", &self.chromium).envs(variables.iter().copied());
        let printed = crate::python::run_command(&mut node)?;
        serde_json::from_str(&printed).with_context(|| format!("measuring {what}: no JSON: {printed}"))
    }
}
