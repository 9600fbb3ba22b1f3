//! `photofinish upload`: sends a folder through the partner API, exactly as a partner's program would.
//! It keeps no state of its own: what the album already has, by file name, is not sent again.

mod client;
mod folder;

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use url::Url;
use uuid::Uuid;

use self::client::{Client, KnownName, Refusal};
use self::folder::PhotoFile;

/// Files that are signed, sent and confirmed together: few calls, and little to repeat after a break.
const BATCH: usize = 16;

/// Where to send what.
#[derive(clap::Args)]
pub struct UploadArguments {
    /// The service's address, for example http://127.0.0.1:8080
    #[arg(long)]
    url: Url,
    /// An API key with the scope photo:upload
    #[arg(long, env = "PHOTOFINISH_KEY", hide_env_values = true)]
    key: String,
    /// The album
    #[arg(long)]
    album: Uuid,
    /// Files on their way at once
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    parallel: u16,
    /// The folder; its subfolders are sent too
    folder: PathBuf,
}

/// Sends what is missing and prints what became of every file.
///
/// # Errors
/// When the folder cannot be read, or the service refuses the key or the album.
pub fn run(arguments: &UploadArguments) -> anyhow::Result<ExitCode> {
    let listing = folder::photos(&arguments.folder)
        .with_context(|| format!("reading the folder {}", arguments.folder.display()))?;
    let client = Client::new(&arguments.url, &arguments.key, arguments.album)?;
    let known = client.known_photos().context("asking which photos the album has")?;
    let Plan { missing, present, stale } = plan(listing.photos, &known);
    for photo in stale {
        client.forget(&photo).with_context(|| format!("removing the unfinished upload {photo}"))?;
    }
    let bar = progress_bar(missing.len() as u64);
    let outcome = send_all(&client, &missing, usize::from(arguments.parallel), &bar);
    bar.finish_and_clear();
    let summary =
        Summary { found: missing.len() + present, present, skipped: listing.skipped, outcome: outcome? };
    print!("{summary}");
    Ok(if summary.outcome.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is to be done, by what the album has.
struct Plan {
    missing: Vec<PhotoFile>,
    present: usize,
    /// Photos signed by a run that broke off before the upload was confirmed.
    stale: Vec<String>,
}

fn plan(files: Vec<PhotoFile>, known: &HashMap<String, KnownName>) -> Plan {
    let mut plan = Plan { missing: Vec::new(), present: 0, stale: Vec::new() };
    for file in files {
        let known = known.get(&file.name);
        plan.stale.extend(known.iter().flat_map(|name| name.unfinished.iter().cloned()));
        if known.is_some_and(|name| name.is_confirmed) {
            plan.present += 1;
        } else {
            plan.missing.push(file);
        }
    }
    plan
}

/// What became of the files that were missing.
#[derive(Default)]
struct Outcome {
    sent: usize,
    sent_bytes: u64,
    refused: Vec<(String, Refusal)>,
}

fn send_all(
    client: &Client,
    files: &[PhotoFile],
    parallel: usize,
    bar: &ProgressBar,
) -> anyhow::Result<Outcome> {
    let batches: Vec<&[PhotoFile]> = files.chunks(BATCH).collect();
    let next = AtomicUsize::new(0);
    let outcome = Mutex::new(Outcome::default());
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..parallel.min(batches.len().max(1)))
            .map(|number| {
                std::thread::Builder::new().name(format!("upload-{number}")).spawn_scoped(scope, || {
                    while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let done = client.send(batch, bar);
                        let mut sum = outcome.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        sum.sent += done.sent;
                        sum.sent_bytes += done.sent_bytes;
                        sum.refused.extend(done.refused);
                    }
                })
            })
            .collect::<Result<_, _>>()?;
        for sender in senders {
            sender.join().map_err(|_| anyhow::anyhow!("an upload thread panicked"))?;
        }
        anyhow::Ok(())
    })?;
    Ok(outcome.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}

fn progress_bar(files: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} photos, {per_sec}, {eta} left {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(files).with_style(style)
}

/// Every file of the folder stands in exactly one line.
struct Summary {
    found: usize,
    present: usize,
    skipped: usize,
    outcome: Outcome,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Outcome { sent, sent_bytes, refused } = &self.outcome;
        writeln!(f, "{} photos in the folder", self.found)?;
        writeln!(f, "  {} were in the album already", self.present)?;
        writeln!(f, "  {sent} sent and confirmed ({:.1} MB)", *sent_bytes as f64 / 1e6)?;
        writeln!(f, "  {} refused", refused.len())?;
        for (name, refusal) in refused {
            writeln!(f, "    {name}: {refusal}")?;
        }
        if self.skipped > 0 {
            writeln!(f, "{} other files were left out (no image by their name)", self.skipped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_album_lacks_is_sent() {
        let file =
            |name: &str| PhotoFile { name: name.into(), path: name.into(), content_type: "image/jpeg" };
        let known = |is_confirmed, unfinished: &[&str]| KnownName {
            is_confirmed,
            unfinished: unfinished.iter().map(|id| (*id).to_owned()).collect(),
        };
        let album = HashMap::from([
            ("done.jpg".to_owned(), known(true, &[])),
            ("half.jpg".to_owned(), known(false, &["2"])),
            // Signed twice, as the answer to the first call was lost; confirmed once.
            ("twice.jpg".to_owned(), known(true, &["3"])),
        ]);
        let plan = plan(["done.jpg", "half.jpg", "twice.jpg", "new.jpg"].map(file).into(), &album);
        let names: Vec<&str> = plan.missing.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["half.jpg", "new.jpg"]);
        assert_eq!(plan.present, 2);
        assert_eq!(plan.stale, ["2", "3"]);
    }
}
