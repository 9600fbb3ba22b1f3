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
use crate::process::shown;
use crate::report::heading;
use crate::setup::{self, Ready, SetupArguments};

/// Between two looks at the progress.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

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
    let own_photos = arguments.folder.as_deref().map(existing_folder).transpose()?;
    let ready = setup::run(layout, &arguments.setup)?;
    if own_photos.is_none() {
        setup::for_sample_event(layout)?;
    }
    checks::build_service(layout)?;
    let sample = match own_photos {
        Some(_) => None,
        None => Some(event::Sample::draw(layout)?),
    };
    let data = data_folder(layout, own_photos.as_deref())?;

    heading("Starting the service");
    let service = start(layout, &ready, &data)?;
    heading("An organization, a key and an album");
    let key = service.new_key()?;
    let title = own_photos.as_deref().map_or_else(|| "Sample event".into(), title_of);
    let api = Api::new(service.address(), &key);
    let album = api.album(&title)?;
    println!("  album {album} \"{title}\"");

    let photos = own_photos.or_else(|| sample.as_ref().map(event::Sample::photos));
    send(&service, &api, &album, &photos.context("there are photos of one kind or the other")?)?;
    heading("Searching");
    match &sample {
        Some(sample) => searches::of_sample(&api, &album, sample)?,
        None => searches::of_own_photos(&api, &album, &data)?,
    }
    print_next_steps(&service, &key, &album, sample.as_ref());
    if arguments.stop { service.stop() } else { service.wait() }
}

fn existing_folder(folder: &Path) -> anyhow::Result<PathBuf> {
    if !folder.is_dir() {
        bail!("{} is no folder", folder.display());
    }
    folder.canonicalize().with_context(|| format!("cannot read {}", folder.display()))
}

/// The sample event begins anew each time; a folder of the user's goes on where it was.
fn data_folder(layout: &Layout, own_photos: Option<&Path>) -> anyhow::Result<PathBuf> {
    let Some(photos) = own_photos else {
        let folder = layout.state("demo/sample");
        digest::emptied(&folder)?;
        return Ok(folder);
    };
    let name = digest::of_text(&photos.to_string_lossy());
    let folder = layout.state("demo").join(&name[..12]);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

fn start(layout: &Layout, ready: &Ready, data: &Path) -> anyhow::Result<Service> {
    let mut command = Command::new(layout.file("target/release/photofinish"));
    ready.tell(&mut command);
    command.current_dir(layout.root()).env("PHOTOFINISH_DATA_DIR", data);
    let service = Service::start(command, data)?;
    println!("  {} is ready; its log: {}", service.address(), service.log().display());
    Ok(service)
}

fn title_of(folder: &Path) -> String {
    folder.file_name().map_or_else(|| "Photos".into(), |name| name.to_string_lossy().into_owned())
}

fn send(service: &Service, api: &Api, album: &str, photos: &Path) -> anyhow::Result<()> {
    heading("Sending the photos (presigned uploads) and processing them");
    let start = Instant::now();
    let mut upload = service.command(&["upload", "--url", service.address(), "--album", album]);
    shown(upload.env("PHOTOFINISH_KEY", api.key()).arg(photos))?;
    loop {
        let progress = api.progress(album)?;
        print_progress(&progress)?;
        if progress.is_idle() {
            println!();
            break;
        }
        std::thread::sleep(LOOK_AGAIN);
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

fn print_next_steps(service: &Service, key: &str, album: &str, sample: Option<&event::Sample>) {
    let base = format!("{}/openapi", service.address());
    let (bib, selfie) =
        sample.map_or(("1234".to_owned(), "selfie.jpg".to_owned()), event::Sample::an_example);
    heading("To go on by hand");
    println!(
        "  key={key}\n  album={album}\n\
         \n  # photos of a bib\n  curl -s {base}/photos/search/text/list -H \"x-api-key: $key\" \
         -H 'content-type: application/json' \\\n    -d \"{{\\\"albumId\\\": \\\"$album\\\", \\\"text\\\": \
         \\\"{bib}\\\"}}\"\n\
         \n  # photos of a person: ask for an upload, send the selfie, search\n  \
         probe=$(curl -s {base}/photos/search/face/signed -H \"x-api-key: $key\" -H 'content-type: \
         application/json' \\\n    -d \"{{\\\"albumId\\\": \\\"$album\\\"}}\")\n  \
         url=$(printf %s \"$probe\" | sed 's/.*\"uploadUrl\":\"\\([^\"]*\\)\".*/\\1/')\n  \
         image=$(printf %s \"$probe\" | sed 's/.*\"imageId\":\"\\([^\"]*\\)\".*/\\1/')\n  \
         curl -s -T '{selfie}' -H 'content-type: image/jpeg' \"$url\"\n  \
         curl -s {base}/photos/search/face/list -H \"x-api-key: $key\" -H 'content-type: application/json' \\\n    \
         -d \"{{\\\"albumId\\\": \\\"$album\\\", \\\"imageId\\\": \\\"$image\\\"}}\"\n\
         \n  # every operation, in a browser\n  {base}/docs"
    );
}
