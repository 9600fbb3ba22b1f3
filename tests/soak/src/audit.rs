//! The audit at the end of a run: every confirmed photo is ready or failed as expected, exactly once, with the faces and
//! texts that were painted; webhooks told it once, and it was charged once; every API finds it as in an undisturbed run;
//! storage has its objects and no others; and the queue is empty.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use photofinish_bench::prometheus::sum_metric;
use photofinish_client::{Client, ClientError, Photo, PhotoState};

use crate::account::Account;
use crate::cluster::Cluster;
use crate::event::{Event, ExpectedOutcome};
use crate::flow::{Flow, wait_until};
use crate::search_results::SearchResults;

/// How long the last messages and objects may take to go after the last photo: leases and messages of killed workers expire
/// first.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(60);

/// What each good photo shows.
const FACES_PER_PHOTO: usize = 2;
const TEXTS_PER_PHOTO: usize = 2;

/// The object that readiness checks leave in storage.
const READINESS_OBJECT: &str = "check/writable";

/// Counts, and a line for each problem.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// How many photos were confirmed.
    pub confirmed: usize,
    /// How many photos were told by webhooks that the partner accepted.
    pub told: usize,
    /// How many webhooks the partner accepted more than once.
    pub repeated: usize,
    /// Credits that were spent.
    pub charged: u64,
    /// Photos that are missing, in the wrong state or incomplete.
    pub lost: Vec<String>,
    /// Photos, or parts of photos, that exist twice.
    pub duplicated: Vec<String>,
    /// Objects of no photo.
    pub orphaned: Vec<String>,
    /// Searches that do not find what they must.
    pub wrong_searches: Vec<String>,
    /// All other problems.
    pub other: Vec<String>,
}

impl Audit {
    /// Whether there is no problem.
    pub fn is_clean(&self) -> bool {
        self.problems().next().is_none()
    }

    fn problems(&self) -> impl Iterator<Item = (&'static str, &String)> {
        let kinds = [
            ("lost", &self.lost),
            ("duplicated", &self.duplicated),
            ("orphaned", &self.orphaned),
            ("wrong search", &self.wrong_searches),
            ("other", &self.other),
        ];
        kinds.into_iter().flat_map(|(kind, lines)| lines.iter().map(move |line| (kind, line)))
    }
}

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX_LINES: usize = 30;
        let mut problems = self.problems();
        for (kind, line) in problems.by_ref().take(MAX_LINES) {
            writeln!(f, "  {kind}: {line}")?;
        }
        match problems.count() {
            0 => Ok(()),
            more => writeln!(f, "  and {more} more"),
        }
    }
}

/// Audits every photo of a flow that is over, in a cluster that runs undisturbed. `undisturbed` are the results of an
/// undisturbed run, where there was one. Returns the search results of this run too.
///
/// # Errors
/// When the cluster does not respond.
pub fn audit_photos(
    cluster: &Cluster,
    event: &Event,
    flow: &Flow<'_>,
    undisturbed: Option<&SearchResults>,
) -> anyhow::Result<(Audit, SearchResults)> {
    let confirmed = flow.confirmed();
    let mut audit = Audit { confirmed: confirmed.len(), ..Audit::default() };
    let client = cluster.client();
    let listed = client.list_photos(flow.album())?;
    audit.check_states(event, &confirmed, &listed);
    audit.check_contents(&client, flow.album(), event, &confirmed)?;
    audit.add_account(Account::of_album(cluster, flow.album(), &listed)?);
    let mut results = SearchResults::default();
    for (number, api) in cluster.apis().iter().enumerate() {
        let client = cluster.client_for(api);
        let found = SearchResults::search_everything(&client, flow.album(), event, &confirmed)?;
        audit.duplicated.extend(found.invalid_hits.iter().cloned());
        let differences = undisturbed.map(|others| found.differences(others)).unwrap_or_default();
        let wrong = found.mistakes(event).into_iter().chain(differences);
        audit.wrong_searches.extend(wrong.map(|wrong| format!("api-{}: {wrong}", number + 1)));
        results = found;
    }
    // Objects of selfies go after their search, messages after their photo is done.
    let mismatch =
        || ObjectMismatch::compare(cluster.list_objects(), &listed, |album| cluster.has_album(album));
    let is_settled = || mismatch().is_empty() && is_queue_empty(cluster);
    if wait_until("nothing is left over", SETTLE_TIMEOUT, is_settled).is_err() {
        let mismatch = mismatch();
        audit.orphaned.extend(mismatch.orphaned);
        audit.lost.extend(mismatch.missing);
        if !is_queue_empty(cluster) {
            let counts = queue_message_counts(cluster);
            audit.other.push(format!("messages are left in the queue: {counts:?}"));
        }
    }
    Ok((audit, results))
}

/// Objects without a photo, and photos without an object.
struct ObjectMismatch {
    orphaned: Vec<String>,
    missing: Vec<String>,
}

impl ObjectMismatch {
    /// Compares the objects of storage with the photos of one album. Objects of other albums of the cluster are left out:
    /// those have audits of their own.
    fn compare(objects: Vec<String>, listed: &[Photo], has_album: impl Fn(&str) -> bool) -> Self {
        let mut expected: HashMap<&str, HashSet<&str>> = HashMap::new();
        for photo in listed {
            let names: &[&str] = match photo.state {
                PhotoState::Ready => &["original", "preview.jpg", "thumbnail.jpg"],
                PhotoState::Failed => &["original"],
                _ => &[],
            };
            expected.insert(&photo.id, names.iter().copied().collect());
        }
        let album = listed.last().map_or("", |photo| photo.album_id.as_str());
        let mut orphaned = Vec::new();
        for object in objects {
            let parts: Vec<&str> = object.split('/').collect();
            let is_expected = match parts[..] {
                ["o", _, "a", owner, "p", photo, name] if owner == album => {
                    expected.get_mut(photo).is_some_and(|names| names.remove(name))
                }
                ["o", _, "a", owner, "p", ..] => has_album(owner),
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
    fn add_account(&mut self, account: Account) {
        (self.told, self.repeated, self.charged) = (account.told, account.repeated, account.charged);
        self.lost.extend(account.missing);
        self.duplicated.extend(account.surplus);
        self.other.extend(account.other);
    }

    fn check_states(&mut self, event: &Event, confirmed: &HashMap<String, String>, listed: &[Photo]) {
        let outcomes: HashMap<&str, &ExpectedOutcome> =
            event.photos.iter().map(|photo| (photo.name.as_str(), &photo.expected)).collect();
        let mut seen: HashSet<&str> = HashSet::new();
        for photo in listed {
            let (id, state, failure) = (photo.id.as_str(), photo.state, photo.failure.as_deref());
            if !seen.insert(id) {
                self.duplicated.push(format!("{id} is listed twice"));
            }
            match confirmed.get(id).map(|name| (name, outcomes[name.as_str()])) {
                Some((_, ExpectedOutcome::Ready { .. } | ExpectedOutcome::Blank))
                    if state == PhotoState::Ready => {}
                Some((_, ExpectedOutcome::Failed(reason)))
                    if state == PhotoState::Failed && failure == Some(*reason) => {}
                Some((name, expected)) => {
                    self.lost
                        .push(format!("{name} ({id}) is {state:?} {failure:?} and must be {expected:?}"));
                }
                // A ticket whose response was lost on the way.
                None if state == PhotoState::AwaitingUpload => {}
                None => self.duplicated.push(format!("{id} is {state:?}, and was never confirmed")),
            }
        }
        let gone = confirmed.iter().filter(|(id, _)| !seen.contains(id.as_str()));
        self.lost.extend(gone.map(|(id, name)| format!("{name} ({id}) is not listed")));
        if confirmed.len() != event.photos.len() {
            self.other.push(format!("{} of {} photos were confirmed", confirmed.len(), event.photos.len()));
        }
    }

    fn check_contents(
        &mut self,
        client: &Client,
        album: &str,
        event: &Event,
        confirmed: &HashMap<String, String>,
    ) -> Result<(), ClientError> {
        let ids: HashMap<&str, &str> =
            confirmed.iter().map(|(id, name)| (name.as_str(), id.as_str())).collect();
        let is_good = |expected: &ExpectedOutcome| matches!(expected, ExpectedOutcome::Ready { .. });
        for photo in event.photos.iter().filter(|photo| is_good(&photo.expected)) {
            let name = photo.name.as_str();
            let Some(id) = ids.get(name) else { continue };
            let detail = client.get_photo(album, id)?;
            let counts = [
                ("faces", detail.faces.len(), FACES_PER_PHOTO),
                ("texts", detail.texts.len(), TEXTS_PER_PHOTO),
            ];
            for (what, found, painted) in counts {
                let line = || format!("{name} ({id}) has {found} {what}, {painted} were painted");
                match found.cmp(&painted) {
                    Ordering::Less => self.lost.push(line()),
                    Ordering::Greater => self.duplicated.push(line()),
                    Ordering::Equal => {}
                }
            }
        }
        Ok(())
    }
}

/// For each process, the queue's messages that wait and those that workers have, as it sees them.
fn queue_message_counts(cluster: &Cluster) -> Vec<(Option<f64>, Option<f64>)> {
    let counts = |process| {
        let page = cluster.metrics_of(process);
        let waiting = sum_metric(&page, "photofinish_queue_stream_lag");
        (waiting, sum_metric(&page, "photofinish_queue_stream_held"))
    };
    cluster.processes().map(|(_, process)| counts(process)).collect()
}

fn is_queue_empty(cluster: &Cluster) -> bool {
    queue_message_counts(cluster).iter().all(|counts| *counts == (Some(0.0), Some(0.0)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn photos(listed: &[Value]) -> Vec<Photo> {
        listed.iter().map(|photo| serde_json::from_value(photo.clone()).expect("a photo")).collect()
    }

    fn audit_states(listed: &[Value]) -> Audit {
        let event = Event::paint(6);
        let confirmed = [("id-1", "0000.jpg"), ("id-5", "0005.jpg")];
        let confirmed = confirmed.map(|(id, name)| (id.to_owned(), name.to_owned())).into();
        let mut audit = Audit::default();
        audit.check_states(&event, &confirmed, &photos(listed));
        audit
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
        let listed = photos(&[
            json!({ "id": "1", "albumId": "x", "state": "ready" }),
            json!({ "id": "2", "albumId": "x", "state": "failed" }),
            json!({ "id": "3", "albumId": "x", "state": "awaiting_upload" }),
        ]);
        let whole = ["1/original", "1/preview.jpg", "1/thumbnail.jpg", "2/original"];
        let whole: Vec<String> = whole.iter().map(|object| format!("o/z/a/x/p/{object}")).collect();
        let has_album = |album: &str| album == "y";
        let compare_with = |others: &[&str]| {
            let others = others.iter().map(|object| (*object).to_owned());
            ObjectMismatch::compare(whole.iter().cloned().chain(others).collect(), &listed, has_album)
        };
        assert!(compare_with(&[READINESS_OBJECT, "o/z/a/y/p/9/original"]).is_empty());
        for orphan in
            ["o/z/a/x/p/2/preview.jpg", "o/z/a/x/p/3/original", "o/z/a/w/p/9/original", "o/z/a/x/s/4"]
        {
            assert_eq!(compare_with(&[orphan]).orphaned, [orphan]);
        }
        let without = ObjectMismatch::compare(whole[1..].to_vec(), &listed, has_album);
        assert_eq!(without.missing, ["1 has no original"]);
    }
}
