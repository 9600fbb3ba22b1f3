//! Where every photo is at the end: each promised one ready or failed as it must be, once, with what was painted in it,
//! found by every API as in an undisturbed run, with its objects and no others, and nothing left in the queue.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use serde_json::Value;

use crate::client::{Client, text};
use crate::cluster::Cluster;
use crate::event::{Event, ExpectedOutcome};
use crate::flow::{Flow, wait_until};
use crate::search_results::SearchResults;

/// How long the last messages and bytes may take to go after the last photo: leases and messages of workers that were
/// killed lapse first.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);

/// What each good photo shows.
const FACES_PER_PHOTO: usize = 2;
const TEXTS_PER_PHOTO: usize = 2;

/// What readiness leaves in storage.
const READINESS_OBJECT: &str = "check/writable";

/// Counts, and a line for each thing that is wrong.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// Promised.
    pub confirmed: usize,
    /// Photos that are not what they must be, or not all of it.
    pub lost: Vec<String>,
    /// Photos, or parts of photos, that are there twice.
    pub duplicated: Vec<String>,
    /// Objects of no photo.
    pub orphaned: Vec<String>,
    /// Searches that find something else than they must.
    pub wrong_searches: Vec<String>,
    /// What else is not as it must be.
    pub other: Vec<String>,
}

impl Audit {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.problems().next().is_none()
    }

    fn problems(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let kinds = [
            ("lost", &self.lost),
            ("doubled", &self.duplicated),
            ("orphaned", &self.orphaned),
            ("different", &self.wrong_searches),
            ("amiss", &self.other),
        ];
        kinds.into_iter().flat_map(|(kind, lines)| lines.iter().map(move |line| (kind, line)))
    }
}

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 30;
        let mut lines = self.problems();
        for (kind, line) in lines.by_ref().take(SHOWN) {
            writeln!(f, "  {kind}: {line}")?;
        }
        match lines.count() {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more"),
        }
    }
}

/// Accounts for every photo of a flow that is over, in a cluster that is whole. `undisturbed` is what the searches of an
/// undisturbed run found, where there was one. Answers what they found in this one, too.
///
/// # Errors
/// When the cluster does not answer.
pub fn audit_photos(
    cluster: &Cluster,
    event: &Event,
    flow: &Flow<'_>,
    undisturbed: Option<&SearchResults>,
) -> anyhow::Result<(Audit, SearchResults)> {
    let promised = flow.confirmed();
    let mut account = Audit { confirmed: promised.len(), ..Audit::default() };
    let client = cluster.client();
    let listed = client.photos(flow.album())?;
    account.check_states(event, &promised, &listed);
    account.check_contents(&client, event, (flow.album(), &promised))?;
    let mut answers = SearchResults::default();
    for (number, api) in cluster.apis().iter().enumerate() {
        let asked = (&cluster.client_for(api), flow.album());
        let (found, doubled) = SearchResults::search_everything(asked, event, &promised)?;
        account.duplicated.extend(doubled);
        let differences = undisturbed.map(|others| found.differences(others)).unwrap_or_default();
        let wrong = found.mistakes(event).into_iter().chain(differences);
        account.wrong_searches.extend(wrong.map(|wrong| format!("api-{}: {wrong}", number + 1)));
        answers = found;
    }
    // Selfies' bytes go when they were looked at, messages when their photos are over.
    let objects =
        || ObjectMismatch::compare(cluster.list_objects(), &listed, |album| cluster.has_album(album));
    let is_settled = || objects().is_empty() && is_queue_empty(cluster);
    if wait_until("nothing is left over", SETTLE_TIMEOUT, is_settled).is_err() {
        let wrong = objects();
        account.orphaned.extend(wrong.orphaned);
        account.lost.extend(wrong.missing);
        if !is_queue_empty(cluster) {
            account
                .other
                .push(format!("messages are left in the queue: {:?}", queue_message_counts(cluster)));
        }
    }
    Ok((account, answers))
}

/// Objects without a photo and photos without an object.
struct ObjectMismatch {
    orphaned: Vec<String>,
    missing: Vec<String>,
}

impl ObjectMismatch {
    /// What is wrong with the objects for the photos as `listed`; other albums that are known have accounts of their own.
    fn compare(objects: Vec<String>, listed: &[Value], knows: impl Fn(&str) -> bool) -> Self {
        let mut expected: HashMap<String, HashSet<&str>> = HashMap::new();
        let mut album = String::new();
        for photo in listed {
            let names: &[&str] = match photo["state"].as_str() {
                Some("ready") => &["original", "preview.jpg", "thumbnail.jpg"],
                Some("failed") => &["original"],
                _ => &[],
            };
            let id = photo["id"].as_str().unwrap_or_default();
            expected.insert(id.to_owned(), names.iter().copied().collect());
            album = text(photo, "albumId").unwrap_or_default();
        }
        let mut orphaned = Vec::new();
        for object in objects {
            let parts: Vec<&str> = object.split('/').collect();
            let is_expected = match parts[..] {
                ["o", _, "a", owner, "p", photo, name] if owner == album => {
                    expected.get_mut(photo).is_some_and(|names| names.remove(name))
                }
                ["o", _, "a", owner, "p", ..] => knows(owner),
                _ => object == READINESS_OBJECT,
            };
            if !is_expected {
                orphaned.push(object);
            }
        }
        let missing = expected.into_iter().flat_map(|(photo, names)| {
            names.into_iter().map(move |name| format!("{photo} has no {name}")).collect::<Vec<_>>()
        });
        Self { orphaned, missing: missing.collect() }
    }

    fn is_empty(&self) -> bool {
        self.orphaned.is_empty() && self.missing.is_empty()
    }
}

impl Audit {
    fn check_states(&mut self, event: &Event, promised: &HashMap<String, String>, listed: &[Value]) {
        let fates: HashMap<&str, &ExpectedOutcome> =
            event.photos.iter().map(|photo| (photo.name.as_str(), &photo.expected)).collect();
        let mut seen: HashSet<&str> = HashSet::new();
        for photo in listed {
            let id = photo["id"].as_str().unwrap_or_default();
            if !seen.insert(id) {
                self.duplicated.push(format!("{id} is listed twice"));
            }
            let state = photo["state"].as_str().unwrap_or_default();
            let failure = photo["failure"].as_str();
            match promised.get(id).map(|name| (name, fates[name.as_str()])) {
                Some((_, ExpectedOutcome::Ready { .. } | ExpectedOutcome::Blank)) if state == "ready" => {}
                Some((_, ExpectedOutcome::Failed(reason)))
                    if state == "failed" && failure == Some(*reason) => {}
                Some((name, fate)) => {
                    self.lost.push(format!("{name} ({id}) is {state} {failure:?} and must be {fate:?}"));
                }
                // A ticket whose answer was lost on the way.
                None if state == "awaiting_upload" => {}
                None => self.duplicated.push(format!("{id} is {state}, and nobody was promised it")),
            }
        }
        let gone = promised.iter().filter(|(id, _)| !seen.contains(id.as_str()));
        self.lost.extend(gone.map(|(id, name)| format!("{name} ({id}) is not listed")));
        if promised.len() != event.photos.len() {
            self.other.push(format!("{} of {} photos were promised", promised.len(), event.photos.len()));
        }
    }

    fn check_contents(
        &mut self,
        client: &Client,
        event: &Event,
        (album, promised): (&str, &HashMap<String, String>),
    ) -> anyhow::Result<()> {
        let ids: HashMap<&str, &str> =
            promised.iter().map(|(id, name)| (name.as_str(), id.as_str())).collect();
        for photo in
            event.photos.iter().filter(|photo| matches!(photo.expected, ExpectedOutcome::Ready { .. }))
        {
            let name = photo.name.as_str();
            let Some(id) = ids.get(name) else { continue };
            let photo = client.photo(album, id)?;
            for (what, painted) in [("faces", FACES_PER_PHOTO), ("texts", TEXTS_PER_PHOTO)] {
                let found = photo[what].as_array().map_or(0, Vec::len);
                let line = || format!("{name} ({id}) has {found} {what}, {painted} were painted");
                match found.cmp(&painted) {
                    std::cmp::Ordering::Less => self.lost.push(line()),
                    std::cmp::Ordering::Greater => self.duplicated.push(line()),
                    std::cmp::Ordering::Equal => {}
                }
            }
        }
        Ok(())
    }
}

/// Messages that wait, and messages that workers have, as each process sees them.
fn queue_message_counts(cluster: &Cluster) -> Vec<(Option<f64>, Option<f64>)> {
    let of = |process| {
        let page = cluster.client_for(process).page("/metrics").unwrap_or_default();
        (
            sum_metric(&page, "photofinish_queue_stream_lag"),
            sum_metric(&page, "photofinish_queue_stream_held"),
        )
    };
    cluster.processes().map(|(_, process)| of(process)).collect()
}

fn is_queue_empty(cluster: &Cluster) -> bool {
    queue_message_counts(cluster).iter().all(|counts| *counts == (Some(0.0), Some(0.0)))
}

/// The sum of a metric over its labels, from a page of them; `None` when it is not on it.
pub fn sum_metric(page: &str, name: &str) -> Option<f64> {
    let of_it = page.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        if rest.starts_with([' ', '{']) { rest.rsplit(' ').next()?.parse().ok() } else { None }
    });
    of_it.reduce(|sum: f64, value| sum + value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn audit_states(listed: &[Value]) -> Audit {
        let event = Event::paint(6);
        let promised = [("id-1", "0000.jpg"), ("id-5", "0005.jpg")];
        let promised = promised.map(|(id, name)| (id.to_owned(), name.to_owned())).into();
        let mut account = Audit::default();
        account.check_states(&event, &promised, listed);
        account
    }

    #[test]
    fn lost_and_duplicated_photos_are_reported() {
        let ready = json!({ "id": "id-1", "state": "ready", "failure": null });
        let failed = json!({ "id": "id-5", "state": "failed", "failure": "CORRUPT_IMAGE" });
        let fine = audit_states(&[ready.clone(), failed.clone()]);
        assert!(fine.lost.is_empty() && fine.duplicated.is_empty(), "{fine}");
        let other = json!({ "id": "id-5", "state": "failed", "failure": "PROCESSING_CRASHED" });
        assert_eq!(audit_states(&[ready.clone(), other]).lost.len(), 1);
        assert_eq!(audit_states(std::slice::from_ref(&ready)).lost.len(), 1);
        assert_eq!(audit_states(&[ready.clone(), ready.clone(), failed.clone()]).duplicated.len(), 1);
        let twin = json!({ "id": "id-9", "state": "ready", "failure": null });
        assert_eq!(audit_states(&[ready.clone(), failed.clone(), twin]).duplicated.len(), 1);
        let ticket = json!({ "id": "id-9", "state": "awaiting_upload", "failure": null });
        assert!(audit_states(&[ready, failed, ticket]).duplicated.is_empty());
    }

    #[test]
    fn surplus_and_missing_objects_are_reported() {
        let listed = [
            json!({ "id": "1", "albumId": "x", "state": "ready" }),
            json!({ "id": "2", "albumId": "x", "state": "failed" }),
            json!({ "id": "3", "albumId": "x", "state": "awaiting_upload" }),
        ];
        let whole = ["1/original", "1/preview.jpg", "1/thumbnail.jpg", "2/original"];
        let whole: Vec<String> = whole.iter().map(|object| format!("o/z/a/x/p/{object}")).collect();
        let knows = |album: &str| album == "y";
        let with = |others: &[&str]| {
            let others = others.iter().map(|object| (*object).to_owned());
            ObjectMismatch::compare(whole.iter().cloned().chain(others).collect(), &listed, knows)
        };
        assert!(with(&[READINESS_OBJECT, "o/z/a/y/p/9/original"]).is_empty());
        for orphan in
            ["o/z/a/x/p/2/preview.jpg", "o/z/a/x/p/3/original", "o/z/a/w/p/9/original", "o/z/a/x/s/4"]
        {
            assert_eq!(with(&[orphan]).orphaned, [orphan]);
        }
        let without = ObjectMismatch::compare(whole[1..].to_vec(), &listed, knows);
        assert_eq!(without.missing, ["1 has no original"]);
    }

    #[test]
    fn a_metric_is_summed_over_its_labels() {
        let page = "# HELP a_total x\na_total{of=\"b c\"} 2\na_total{of=\"d\"} 3\na_total_more 9\nb 1\n";
        assert_eq!(sum_metric(page, "a_total"), Some(5.0));
        assert_eq!(sum_metric(page, "b"), Some(1.0));
        assert_eq!(sum_metric(page, "c"), None);
    }
}
