//! `photofinish upload`: sends a folder through the partner API, exactly as a partner's program would.
//! It keeps no state of its own: what the album already has, by file name, is not sent again. What another uploader may
//! be at is left alone.

pub(crate) mod client;
pub(crate) mod folder;
pub(crate) mod wire;

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use time::Duration;
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
    /// Put before each file name in the album, for folders of cameras that name their files alike; for example cam2/
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    prefix: String,
    /// Removes unfinished uploads of these file names that are as old as this by the service's clock; 0, which removes
    /// all of them, is right when no other upload runs into this album
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    stale_after: u32,
    /// The folder; its subfolders are sent too. What is in the album already is judged by file name alone (the path
    /// below the folder), whatever is in the file
    folder: PathBuf,
}

/// Sends what is missing and prints what became of every file.
///
/// # Errors
/// When the folder cannot be read, or the service refuses the key or the album.
pub fn run(arguments: &UploadArguments) -> anyhow::Result<ExitCode> {
    let listing = folder::photos(&arguments.folder, &arguments.prefix)
        .with_context(|| format!("reading the folder {}", arguments.folder.display()))?;
    let client = Client::new(&arguments.url, &arguments.key, arguments.album)?;
    let known = client.known_photos().context("asking which photos the album has")?;
    let mut plan = plan(listing.photos, &known, Duration::seconds(arguments.stale_after.into()));
    plan.remove_stale(&client)?;
    let Plan { missing, present, left_alone, .. } = plan;
    let bar = progress_bar(missing.len() as u64);
    let outcome = send_all(&client, &missing, usize::from(arguments.parallel), &bar);
    bar.finish_and_clear();
    let summary = Summary {
        found: missing.len() + present,
        present,
        skipped: listing.skipped,
        left_alone,
        stale_after: arguments.stale_after,
        outcome: outcome?,
    };
    print!("{summary}");
    Ok(if summary.outcome.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is to be done, by what the album has.
#[derive(Default)]
struct Plan {
    missing: Vec<PhotoFile>,
    present: usize,
    /// Signed by a run that broke off before the upload was confirmed.
    stale: Vec<Stale>,
    /// How many were signed of late and are not confirmed: another uploader may be at them.
    left_alone: usize,
}

/// A photo that nobody is likely to confirm any more.
#[derive(Debug, PartialEq)]
struct Stale {
    photo: String,
    name: String,
}

impl Plan {
    /// Removes what is stale. What turns out to be confirmed by now stays, and its file is there.
    fn remove_stale(&mut self, client: &Client) -> anyhow::Result<()> {
        for Stale { photo, name } in std::mem::take(&mut self.stale) {
            let is_confirmed = client
                .remove_unless_confirmed(&photo)
                .with_context(|| format!("removing the unfinished upload {photo}"))?;
            if is_confirmed {
                let before = self.missing.len();
                self.missing.retain(|file| file.name != name);
                self.present += before - self.missing.len();
            }
        }
        Ok(())
    }
}

fn plan(files: Vec<PhotoFile>, known: &HashMap<String, KnownName>, stale_after: Duration) -> Plan {
    let mut plan = Plan::default();
    for file in files {
        let known = known.get(&file.name);
        for ticket in known.into_iter().flat_map(|name| &name.unfinished) {
            // The service tells its clock in whole seconds: what was signed just now can have an age below zero.
            if stale_after.is_zero() || ticket.age >= stale_after {
                plan.stale.push(Stale { photo: ticket.photo.clone(), name: file.name.clone() });
            } else {
                plan.left_alone += 1;
            }
        }
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
    left_alone: usize,
    stale_after: u32,
    outcome: Outcome,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Outcome { sent, sent_bytes, refused } = &self.outcome;
        writeln!(f, "{} photos in the folder", self.found)?;
        writeln!(f, "  {} were in the album already, by file name", self.present)?;
        writeln!(f, "  {sent} sent and confirmed ({:.1} MB)", *sent_bytes as f64 / 1e6)?;
        writeln!(f, "  {} refused", refused.len())?;
        for (name, refusal) in refused {
            writeln!(f, "    {name}: {refusal}")?;
        }
        if self.skipped > 0 {
            writeln!(f, "{} other files were left out (no image by their name)", self.skipped)?;
        }
        if self.left_alone > 0 {
            let Self { left_alone, stale_after, .. } = self;
            writeln!(
                f,
                "{left_alone} unfinished uploads of these file names, begun less than {stale_after} seconds ago, were \
                 left alone: another uploader may be at them; if none is, run this again with --stale-after 0"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::client::Unfinished;
    use super::*;

    fn file(name: &str) -> PhotoFile {
        PhotoFile { name: name.into(), path: name.into(), content_type: "image/jpeg" }
    }

    fn ticket(photo: &str, age: Duration) -> Unfinished {
        Unfinished { photo: photo.into(), age }
    }

    #[test]
    fn only_files_missing_from_the_album_are_sent() {
        let known = |is_confirmed, unfinished: &[&str]| KnownName {
            is_confirmed,
            unfinished: unfinished.iter().map(|id| ticket(id, Duration::hours(2))).collect(),
        };
        let album = HashMap::from([
            ("done.jpg".to_owned(), known(true, &[])),
            ("half.jpg".to_owned(), known(false, &["2"])),
            // Signed twice, as the answer to the first call was lost; confirmed once.
            ("twice.jpg".to_owned(), known(true, &["3"])),
        ]);
        let files = ["done.jpg", "half.jpg", "twice.jpg", "new.jpg"].map(file).into();
        let plan = plan(files, &album, Duration::HOUR);
        let names: Vec<&str> = plan.missing.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["half.jpg", "new.jpg"]);
        assert_eq!(plan.present, 2);
        assert_eq!(plan.left_alone, 0);
        let stale = |photo: &str, name: &str| Stale { photo: photo.into(), name: name.into() };
        assert_eq!(plan.stale, [stale("2", "half.jpg"), stale("3", "twice.jpg")]);
    }

    #[test]
    fn recent_unconfirmed_photos_are_kept_unless_stale_after_is_zero() {
        // The last one as a clock of whole seconds shows what was signed just now.
        let ages = [Duration::hours(2), Duration::HOUR, Duration::minutes(59), Duration::milliseconds(-900)];
        let unfinished = ages.iter().map(|age| ticket("1", *age)).collect();
        let album = HashMap::from([("a.jpg".to_owned(), KnownName { is_confirmed: false, unfinished })]);
        for (stale_after, stale, left_alone) in [(Duration::HOUR, 2, 2), (Duration::ZERO, 4, 0)] {
            let plan = plan(vec![file("a.jpg")], &album, stale_after);
            assert_eq!((plan.stale.len(), plan.left_alone), (stale, left_alone), "{stale_after}");
            assert_eq!(plan.missing.len(), 1, "what nobody may finish is sent");
        }
    }
}
