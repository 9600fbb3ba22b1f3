//! `cargo xtask demo`: the whole way of a partner, told as it happens. Talks to the service by its command line and its
//! API alone, so that what it shows is what a partner gets.

mod api;
mod event;
mod searches;
mod service;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;

use self::api::{Api, Progress};
use self::service::Service;
use crate::checks;
use crate::digest;
use crate::layout::Layout;
use crate::process::run_visibly;
use crate::report::print_heading;
use crate::setup::{self, SetupArguments, SetupPaths};

/// Between two looks at the progress.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Lines for a shell. The words in capitals are put in.
const NEXT_STEPS: &str = r#"
  base=ADDRESS
  key=KEY
  album=ALBUM
  post() { curl -s "$base/$1" -H "x-api-key: $key" -H 'content-type: application/json' -d "$2"; echo; }

  # photos of a bib
  post photos/search/text/list "{\"albumId\": \"$album\", \"text\": \"BIB\"}"

  # photos of a person: ask where to send a selfie, send it, search
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
    /// Your own photos, with subfolders; without it a sample event is made
    folder: Option<PathBuf>,
    /// Stop the service at the end instead of leaving it running
    #[arg(long)]
    stop: bool,
    #[command(flatten)]
    setup: SetupArguments,
}

/// Sets up, starts the service, sends an event and searches it.
pub fn run(layout: &Layout, arguments: &DemoArguments) -> anyhow::Result<()> {
    let own_photos = arguments.folder.as_deref().map(check_photo_folder).transpose()?;
    let ready = setup::run(layout, &arguments.setup)?;
    if own_photos.is_none() {
        setup::install_sample_event(layout)?;
    }
    checks::build_service(layout)?;
    let sample = match own_photos {
        Some(_) => None,
        None => Some(event::SampleEvent::draw_or_reuse(layout)?),
    };
    let data = prepare_data_folder(layout, own_photos.as_deref())?;

    print_heading("Starting the service");
    let service = start_service(layout, &ready, &data)?;
    print_heading("An organization, a key and an album");
    let key = service.new_key()?;
    let title = own_photos.as_deref().map_or_else(|| "Sample event".into(), album_title_from);
    let api = Api::new(service.address(), &key);
    let album = api.album(&title)?;
    println!("  album {album} \"{title}\"");

    let photos = own_photos.or_else(|| sample.as_ref().map(event::SampleEvent::photos_dir));
    upload_photos(&service, &api, &album, &photos.context("there are photos of one kind or the other")?)?;
    print_heading("Searching");
    let example = match &sample {
        Some(sample) => {
            searches::search_sample_event(&api, &album, sample)?;
            sample.example_search()
        }
        None => {
            let bib = searches::search_own_photos(&api, &album, &data)?;
            (bib.unwrap_or_else(|| "1234".into()), "selfie.jpg".into())
        }
    };
    print_next_steps(service.address(), &api, &album, &example);
    if arguments.stop { service.stop() } else { service.wait() }
}

fn check_photo_folder(folder: &Path) -> anyhow::Result<PathBuf> {
    if !folder.is_dir() {
        bail!("{} is no folder", folder.display());
    }
    folder.canonicalize().with_context(|| format!("cannot read {}", folder.display()))
}

/// The sample event begins anew each time; a folder of the user's goes on where it was.
fn prepare_data_folder(layout: &Layout, own_photos: Option<&Path>) -> anyhow::Result<PathBuf> {
    let Some(photos) = own_photos else {
        let folder = layout.state_path("demo/sample");
        digest::recreate_folder(&folder)?;
        return Ok(folder);
    };
    let name = digest::hash_text(&photos.to_string_lossy());
    let folder = layout.state_path("demo").join(&name[..12]);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

fn start_service(layout: &Layout, ready: &SetupPaths, data: &Path) -> anyhow::Result<Service> {
    let mut command = Command::new(layout.service_binary()?);
    ready.set_variables(&mut command);
    command.current_dir(layout.root()).env("PHOTOFINISH_DATA_DIR", data);
    let service = Service::start(command, data)?;
    println!("  {} is ready; its log: {}", service.address(), service.log().display());
    Ok(service)
}

fn album_title_from(folder: &Path) -> String {
    folder.file_name().map_or_else(|| "Photos".into(), |name| name.to_string_lossy().into_owned())
}

fn upload_photos(service: &Service, api: &Api, album: &str, photos: &Path) -> anyhow::Result<()> {
    print_heading("Sending the photos (presigned uploads) and processing them");
    let start = Instant::now();
    let mut upload = service.command(&["upload", "--url", service.address(), "--album", album]);
    run_visibly(upload.env("PHOTOFINISH_KEY", api.key()).arg(photos))?;
    loop {
        let progress = api.progress(album)?;
        print_progress(&progress)?;
        if progress.is_idle() {
            println!();
            break;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    println!("  {:.1} s from the first upload to the last photo", start.elapsed().as_secs_f64());
    Ok(())
}

/// One line, written over.
fn print_progress(progress: &Progress) -> anyhow::Result<()> {
    use std::io::Write;
    print!("\r\x1b[K  {progress}");
    std::io::stdout().flush().context("cannot write to the terminal")
}

/// The same by hand; `example` is a bib and the path of a selfie.
fn print_next_steps(address: &str, api: &Api, album: &str, example: &(String, String)) {
    print_heading("To go on by hand");
    let lines = NEXT_STEPS
        .replace("ADDRESS", &format!("{address}/openapi"))
        .replace("KEY", api.key())
        .replace("ALBUM", album)
        .replace("BIB", &example.0)
        .replace("SELFIE", &example.1);
    println!("{lines}");
}
