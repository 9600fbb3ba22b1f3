//! `cargo xtask demo`: everything that a partner does, from a key to searches, printed as it happens. It uses the service by
//! its command line and its API alone, so that what it shows is what a partner gets.

mod event;
mod searches;
mod service;

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use photofinish_client::{Client, ClientOptions, Progress};
use photofinish_launcher::Installation;

use self::event::{ExampleSearch, SampleEvent};
use self::service::Service;
use crate::checks;
use crate::digest;
use crate::layout::Layout;
use crate::process::run_visibly;
use crate::report::print_heading;
use crate::setup::{self, SetupArguments, SetupPaths};

/// Between two polls of the progress.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Lines for a shell. The words in capitals are replaced.
const NEXT_STEPS: &str = r#"
  base=ADDRESS
  key=KEY
  album=ALBUM
  post() { curl -s "$base/$1" -H "x-api-key: $key" -H 'content-type: application/json' -d "$2"; echo; }

  # photos of a bib
  post photos/search/text/list "{\"albumId\": \"$album\", \"text\": \"BIB\"}"

  # photos of a person: get an upload URL for a selfie, upload it, search
  probe=$(post photos/search/face/signed "{\"albumId\": \"$album\"}")
  url=$(printf %s "$probe" | sed 's/.*"uploadUrl":"\([^"]*\)".*/\1/')
  image=$(printf %s "$probe" | sed 's/.*"imageId":"\([^"]*\)".*/\1/')
  curl -s -T 'SELFIE' -H 'content-type: image/jpeg' "$url"
  post photos/search/face/list "{\"albumId\": \"$album\", \"imageId\": \"$image\"}"

  # every operation, to read in a browser
  # ADDRESS/docs
"#;

/// What to show.
#[derive(Args)]
pub struct DemoArguments {
    /// Your own photos, with subfolders; without it a sample event is drawn
    folder: Option<PathBuf>,
    /// Stop the service at the end instead of leaving it running
    #[arg(long)]
    stop: bool,
    #[command(flatten)]
    setup: SetupArguments,
}

/// Sets up, starts the service, uploads an event and searches it.
pub fn run(layout: &Layout, arguments: &DemoArguments) -> anyhow::Result<()> {
    let own_photos = arguments.folder.as_deref().map(check_photo_folder).transpose()?;
    let paths = setup::run(layout, &arguments.setup)?;
    if own_photos.is_none() {
        setup::install_sample_event(layout)?;
    }
    checks::build_service(layout)?;
    let sample = match own_photos {
        Some(_) => None,
        None => Some(SampleEvent::draw_or_reuse(layout)?),
    };
    let data = prepare_data_folder(layout, own_photos.as_deref())?;

    print_heading("Starting the service");
    let service = start_service(layout, &paths, &data.path)?;
    print_heading("An organization, a key and an album");
    let title = own_photos.as_deref().map_or_else(|| "Sample event".into(), album_title_from);
    let client = Client::new(service.address(), &service.create_key()?, ClientOptions::default());
    let album = match client.find_album(&title)? {
        Some(album) => album.id,
        None => client.create_album(&title, None)?.id,
    };
    println!("  album {album} \"{title}\"");

    let photos = own_photos.or_else(|| sample.as_ref().map(SampleEvent::photos_dir));
    upload_photos(&service, &client, &album, &photos.context("no photos to upload")?)?;
    print_heading("Searching");
    let example = match &sample {
        Some(sample) => {
            searches::search_sample_event(&client, &album, sample)?;
            sample.example_search()
        }
        None => {
            let bib = searches::search_own_photos(&client, &album, &data.path)?;
            ExampleSearch { bib: bib.unwrap_or_else(|| "1234".into()), selfie: "selfie.jpg".into() }
        }
    };
    print_next_steps(&client, &album, &example);
    print_pages(&service, &client, &album)?;
    if arguments.stop { service.stop() } else { service.wait() }
}

fn check_photo_folder(folder: &Path) -> anyhow::Result<PathBuf> {
    if !folder.is_dir() {
        bail!("{} is no folder", folder.display());
    }
    folder.canonicalize().with_context(|| format!("cannot read {}", folder.display()))
}

/// The folder of the service's data.
struct DataFolder {
    path: PathBuf,
    /// No other demonstration empties the folder as long as this is open.
    _lock: Option<File>,
}

/// The folder of the service's data: empty for the sample event; for a folder of the user's the one of the last run, which
/// is continued.
fn prepare_data_folder(layout: &Layout, own_photos: Option<&Path>) -> anyhow::Result<DataFolder> {
    let Some(photos) = own_photos else { return empty_sample_folder(&layout.state_path("demo")) };
    let name = digest::hash_text(&photos.to_string_lossy());
    let path = layout.state_path("demo").join(&name[..12]);
    std::fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    Ok(DataFolder { path, _lock: None })
}

/// Empties the folder of the sample event, unless another demonstration uses it.
fn empty_sample_folder(demo: &Path) -> anyhow::Result<DataFolder> {
    std::fs::create_dir_all(demo).with_context(|| format!("cannot make {}", demo.display()))?;
    let path = demo.join("sample");
    // Beside the folder, which is deleted with all that is in it.
    let lock_file = demo.join("sample.lock");
    let lock = File::options().write(true).create(true).truncate(true).open(&lock_file);
    let lock = lock.with_context(|| format!("cannot write {}", lock_file.display()))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => bail!(
            "another `cargo xtask demo` is running with its data in {}: end that one first, with Ctrl-C",
            path.display()
        ),
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("cannot lock {}", lock_file.display()));
        }
    }
    digest::recreate_folder(&path)?;
    Ok(DataFolder { path, _lock: Some(lock) })
}

fn start_service(layout: &Layout, paths: &SetupPaths, data: &Path) -> anyhow::Result<Service> {
    let installation = paths
        .variables()
        .into_iter()
        .fold(Installation::new(layout.service_binary()?, data), |installation, (name, value)| {
            installation.with_setting(name, value)
        });
    let service = Service::start(installation)?;
    println!("  {} is ready; its log: {}", service.address(), service.log().display());
    Ok(service)
}

fn album_title_from(folder: &Path) -> String {
    folder.file_name().map_or_else(|| "Photos".into(), |name| name.to_string_lossy().into_owned())
}

fn upload_photos(service: &Service, client: &Client, album: &str, photos: &Path) -> anyhow::Result<()> {
    print_heading("Uploading the photos (presigned uploads) and processing them");
    let start = Instant::now();
    let mut upload = service.command(&["upload", "--url", service.address(), "--album", album]);
    run_visibly(upload.env("PHOTOFINISH_KEY", client.key()).arg(photos))?;
    client.wait_until_idle(album, POLL_INTERVAL, Duration::MAX, print_progress)?;
    println!("\n  {:.1} s from the first upload to the last photo", start.elapsed().as_secs_f64());
    Ok(())
}

/// Prints one line over the last one.
fn print_progress(progress: &Progress) {
    use std::io::Write;
    print!("\r\x1b[K  {progress}");
    // A terminal that shows the line later is no reason to stop.
    std::io::stdout().flush().ok();
}

/// Opens the gallery of the album, and prints where the pages are.
fn print_pages(service: &Service, client: &Client, album: &str) -> anyhow::Result<()> {
    let settings = serde_json::json!({
        "albumId": album,
        "enabled": true,
        "browse": true,
        "selfieSearch": true,
        "contact": "privacy@race.example",
        "privacyUrl": "https://race.example/privacy",
    });
    let gallery: serde_json::Value = client.call("albums/gallery/update", &settings)?;
    print_heading("To look at in a browser");
    println!("  the console, signed in by this link once, within a quarter of an hour");
    println!("    {}", service.create_console_link()?);
    println!("  the gallery, as runners see it");
    println!("    {}", gallery["url"].as_str().context("an open gallery has an address")?);
    Ok(())
}

/// Prints the same steps as lines for a shell.
fn print_next_steps(client: &Client, album: &str, example: &ExampleSearch) {
    print_heading("To continue by hand");
    let lines = NEXT_STEPS
        .replace("ADDRESS", &format!("{}/openapi", client.origin()))
        .replace("KEY", client.key())
        .replace("ALBUM", album)
        .replace("BIB", &example.bib)
        .replace("SELFIE", &example.selfie);
    println!("{lines}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_a_running_demonstration_is_not_deleted() {
        let demo = tempfile::tempdir().unwrap();
        let first = empty_sample_folder(demo.path()).unwrap();
        let kept = first.path.join("photofinish.sqlite");
        std::fs::write(&kept, "").unwrap();
        let refused = empty_sample_folder(demo.path()).map(|folder| folder.path).unwrap_err();
        assert!(refused.to_string().contains("is running"), "{refused}");
        assert!(kept.exists());
        drop(first);
        assert!(empty_sample_folder(demo.path()).is_ok());
        assert!(!kept.exists(), "after the end of the first, the next begins with an empty folder");
    }
}
