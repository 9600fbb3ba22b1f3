//! `photofinish upload`: sends a folder through the partner API, exactly as a partner's program would.
//!
//! It keeps no state of its own. A file whose name the album already has is not sent again. Photos that another uploader
//! may be at work on are left alone.

mod folder;
mod sender;

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use time::Duration;
use url::Url;
use uuid::Uuid;

use self::folder::LocalPhoto;
use self::sender::{KnownName, Outcome, Refusal, Sender};

/// Files that are signed, uploaded and confirmed together: few calls, and little to repeat after an interruption.
const BATCH: usize = 16;

/// What to send, and where to.
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
    /// Files uploaded at once
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=64))]
    parallel: u16,
    /// Put before each file name in the album, for folders of cameras that use the same names; for example cam2/
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    prefix: String,
    /// Removes unfinished uploads of these file names that are as old as this by the service's clock; 0, which removes
    /// all of them, is right when no other upload runs into this album
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    stale_after: u32,
    /// The folder; its subfolders are sent too. Whether the album already has a file is decided by its name alone (the
    /// path below the folder), not by its content
    folder: PathBuf,
}

/// Sends what the album lacks and prints what became of every file.
///
/// # Errors
/// When the folder cannot be read, or the service refuses the key or the album.
pub fn run(arguments: &UploadArguments) -> anyhow::Result<ExitCode> {
    let listing = folder::list_photos(&arguments.folder, &arguments.prefix)
        .with_context(|| format!("reading the folder {}", arguments.folder.display()))?;
    let sender = Sender::new(&arguments.url, &arguments.key, arguments.album)?;
    let known = sender.load_known_names().context("listing the photos of the album")?;
    let mut plan = plan_upload(listing.photos, &known, Duration::seconds(arguments.stale_after.into()));
    plan.delete_stale(&sender)?;
    let Plan { missing, present, left_alone, .. } = plan;
    let bar = progress_bar(missing.len() as u64);
    let outcome = send_all(&sender, &missing, usize::from(arguments.parallel), &bar);
    bar.finish_and_clear();
    let outcome = outcome?;
    let not_sent = missing.len() - outcome.sent - outcome.refused.len();
    let summary = Summary {
        found: missing.len() + present,
        present,
        skipped: listing.skipped,
        unreadable: listing.unreadable,
        left_alone,
        stale_after: arguments.stale_after,
        not_sent: sender
            .why_ended()
            .filter(|_| not_sent > 0)
            .map(|reason| NotSent { files: not_sent, reason: reason.to_owned() }),
        outcome,
    };
    print!("{summary}");
    Ok(if summary.is_complete() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is to be done, given what the album has.
#[derive(Default)]
struct Plan {
    missing: Vec<LocalPhoto>,
    /// How many files the album already has.
    present: usize,
    /// Signed by a run that was interrupted before it confirmed them.
    stale: Vec<StalePhoto>,
    /// How many were signed recently and are not confirmed: another uploader may be at work on them.
    left_alone: usize,
}

/// A photo that is unlikely ever to be confirmed.
#[derive(Debug, PartialEq)]
struct StalePhoto {
    photo: String,
    name: String,
}

impl Plan {
    /// Deletes stale photos. One that turns out to be confirmed by now stays, and its file is present.
    fn delete_stale(&mut self, sender: &Sender) -> anyhow::Result<()> {
        for StalePhoto { photo, name } in std::mem::take(&mut self.stale) {
            let is_confirmed = sender
                .delete_unless_confirmed(&photo)
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

fn plan_upload(files: Vec<LocalPhoto>, known: &HashMap<String, KnownName>, stale_after: Duration) -> Plan {
    let mut plan = Plan::default();
    for file in files {
        let known = known.get(&file.name);
        for unconfirmed in known.into_iter().flat_map(|name| &name.unconfirmed) {
            // The service's clock comes in whole seconds: a photo that was signed just now can have a negative age.
            if stale_after.is_zero() || unconfirmed.age >= stale_after {
                plan.stale.push(StalePhoto { photo: unconfirmed.photo.clone(), name: file.name.clone() });
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

fn send_all(
    sender: &Sender,
    files: &[LocalPhoto],
    parallel: usize,
    bar: &ProgressBar,
) -> anyhow::Result<Outcome> {
    let batches: Vec<&[LocalPhoto]> = files.chunks(BATCH).collect();
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Outcome::default());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..parallel.min(batches.len().max(1)))
            .map(|number| {
                std::thread::Builder::new().name(format!("upload-{number}")).spawn_scoped(scope, || {
                    while sender.why_ended().is_none()
                        && let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        let outcome = sender.send_batch(batch, bar);
                        total.lock().unwrap_or_else(PoisonError::into_inner).add(outcome);
                    }
                })
            })
            .collect::<Result<_, _>>()?;
        for thread in threads {
            thread.join().map_err(|_| anyhow::anyhow!("an upload thread panicked"))?;
        }
        anyhow::Ok(())
    })?;
    Ok(total.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn progress_bar(files: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} photos, {per_sec}, {eta} left {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(files).with_style(style)
}

/// What is printed at the end. Every file of the folder is counted in exactly one line.
struct Summary {
    found: usize,
    present: usize,
    skipped: usize,
    unreadable: Vec<String>,
    left_alone: usize,
    stale_after: u32,
    /// Those that were not tried, and why.
    not_sent: Option<NotSent>,
    outcome: Outcome,
}

struct NotSent {
    files: usize,
    reason: String,
}

impl Summary {
    /// Whether the album has all photos of the folder.
    fn is_complete(&self) -> bool {
        self.outcome.refused.is_empty() && self.not_sent.is_none() && self.unreadable.is_empty()
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Outcome { sent, sent_bytes, refused } = &self.outcome;
        writeln!(f, "{} photos in the folder", self.found)?;
        writeln!(f, "  {} were in the album already, by file name", self.present)?;
        writeln!(f, "  {sent} sent and confirmed ({:.1} MB)", *sent_bytes as f64 / 1e6)?;
        writeln!(f, "  {} refused", refused.len())?;
        for Refusal { name, reason } in refused {
            writeln!(f, "    {name}: {reason}")?;
        }
        if let Some(NotSent { files, reason }) = &self.not_sent {
            writeln!(f, "  {files} not sent: {reason}")?;
        }
        for folder in &self.unreadable {
            writeln!(f, "{folder}: cannot be read, its photos are not among these")?;
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
    use super::sender::Unconfirmed;
    use super::*;

    fn file(name: &str) -> LocalPhoto {
        LocalPhoto { name: name.into(), path: name.into(), content_type: "image/jpeg" }
    }

    fn unconfirmed(photo: &str, age: Duration) -> Unconfirmed {
        Unconfirmed { photo: photo.into(), age }
    }

    #[test]
    fn only_files_missing_from_the_album_are_sent() {
        let known = |is_confirmed, ids: &[&str]| KnownName {
            is_confirmed,
            unconfirmed: ids.iter().map(|id| unconfirmed(id, Duration::hours(2))).collect(),
        };
        let album = HashMap::from([
            ("done.jpg".to_owned(), known(true, &[])),
            ("half.jpg".to_owned(), known(false, &["2"])),
            // Signed twice, as the response to the first call was lost; confirmed once.
            ("twice.jpg".to_owned(), known(true, &["3"])),
        ]);
        let files = ["done.jpg", "half.jpg", "twice.jpg", "new.jpg"].map(file).into();
        let plan = plan_upload(files, &album, Duration::HOUR);
        let names: Vec<&str> = plan.missing.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["half.jpg", "new.jpg"]);
        assert_eq!(plan.present, 2);
        assert_eq!(plan.left_alone, 0);
        let stale = |photo: &str, name: &str| StalePhoto { photo: photo.into(), name: name.into() };
        assert_eq!(plan.stale, [stale("2", "half.jpg"), stale("3", "twice.jpg")]);
    }

    #[test]
    fn recent_unconfirmed_photos_are_kept_unless_stale_after_is_zero() {
        // The last one: a clock of whole seconds makes the age of what was signed just now negative.
        let ages = [Duration::hours(2), Duration::HOUR, Duration::minutes(59), Duration::milliseconds(-900)];
        let unconfirmed = ages.iter().map(|age| unconfirmed("1", *age)).collect();
        let album = HashMap::from([("a.jpg".to_owned(), KnownName { is_confirmed: false, unconfirmed })]);
        for (stale_after, stale, left_alone) in [(Duration::HOUR, 2, 2), (Duration::ZERO, 4, 0)] {
            let plan = plan_upload(vec![file("a.jpg")], &album, stale_after);
            assert_eq!((plan.stale.len(), plan.left_alone), (stale, left_alone), "{stale_after}");
            assert_eq!(plan.missing.len(), 1, "a file that is not confirmed is sent");
        }
    }

    #[test]
    fn a_summary_says_what_the_album_lacks_and_is_not_complete_then() {
        let complete = || Summary {
            found: 3,
            present: 1,
            skipped: 0,
            unreadable: Vec::new(),
            left_alone: 0,
            stale_after: 3600,
            not_sent: None,
            outcome: Outcome { sent: 2, ..Outcome::default() },
        };
        assert!(complete().is_complete());
        let unreadable = Summary { unreadable: vec!["locked: permission denied".into()], ..complete() };
        let not_sent = NotSent { files: 2, reason: "the service is away".into() };
        let not_sent = Summary { not_sent: Some(not_sent), outcome: Outcome::default(), ..complete() };
        for (summary, said) in [
            (unreadable, "\nlocked: permission denied: cannot be read, its photos are not among these\n"),
            (not_sent, "\n  2 not sent: the service is away\n"),
        ] {
            assert!(!summary.is_complete(), "{summary}");
            assert!(summary.to_string().contains(said), "{summary}");
        }
    }
}
