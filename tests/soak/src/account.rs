//! What organizations are told and charged, compared with what happened to their photos: each that is ready or failed is in
//! one event whose delivery was accepted, and each that is ready was charged once.

use std::collections::BTreeSet;
use std::time::Duration;

use photofinish_client::{Client, ClientError, Photo, PhotoState};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::cluster::Cluster;
use crate::flow::wait_until;
use crate::partner::ToldPhotos;

/// How long events may take after the last photo: a delivery whose sender was killed is made again after a minute, and
/// another process takes over the publishing of events of one that was killed after 15 s.
const TELL_TIMEOUT: Duration = Duration::from_secs(180);
/// How often a photo may have failed: a client whose answer to a confirmation was lost confirms again, and a photo that has failed
/// by then is queued again, as one that was uploaded again is.
const MAX_FAILURES: u64 = 2;

/// Between two looks at what was told: every body is read again.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// How long holds may stay: until what a transaction did is visible everywhere.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(20);

/// Problems by their kind.
#[derive(Debug, Default)]
pub struct Account {
    /// Photos that were told.
    pub told: usize,
    /// Deliveries that were accepted more than once.
    pub repeated: usize,
    /// Credits that were spent on the album.
    pub charged: u64,
    /// Photos that were not told or not charged.
    pub missing: Vec<String>,
    /// Photos that were told or charged twice, or that should not have been.
    pub surplus: Vec<String>,
    /// All other problems.
    pub other: Vec<String>,
}

impl Account {
    /// Compares what was told and charged of an album with its photos.
    ///
    /// # Errors
    /// When the cluster does not respond.
    pub fn of_album(cluster: &Cluster, album: &str, listed: &[Photo]) -> Result<Self, ClientError> {
        let mut account = Self::default();
        let is_told = || {
            let is_told = account_of_events(&cluster.partner().told_photos(album), listed).missing.is_empty();
            if !is_told {
                std::thread::sleep(LOOK_INTERVAL);
            }
            is_told
        };
        // Whoever was not told is reported below.
        drop(wait_until("every photo is told", TELL_TIMEOUT, is_told));
        account.add(account_of_events(&cluster.partner().told_photos(album), listed));
        account.check_usage(&cluster.client(), album, listed)?;
        account.check_balance(&cluster.client())?;
        Ok(account)
    }

    fn add(&mut self, other: Self) {
        self.told += other.told;
        self.repeated += other.repeated;
        self.missing.extend(other.missing);
        self.surplus.extend(other.surplus);
        self.other.extend(other.other);
    }

    /// Whether each ready photo was charged once, and failures were counted once and cost nothing.
    fn check_usage(&mut self, client: &Client, album: &str, listed: &[Photo]) -> Result<(), ClientError> {
        let rows = read_usage(client)?;
        for (operation, state, price) in
            [("photo", PhotoState::Ready, 1), ("photo_failed", PhotoState::Failed, 0)]
        {
            let expected = listed.iter().filter(|photo| photo.state == state).count() as u64;
            let row = rows.iter().find(|row| row["albumId"] == album && row["operation"] == operation);
            let number = |name: &str| row.and_then(|row| row[name].as_u64()).unwrap_or(0);
            let (count, credits) = (number("count"), number("credits"));
            self.charged += credits;
            let is_counted = match state {
                PhotoState::Failed => (expected..=expected * MAX_FAILURES).contains(&count),
                _ => count == expected,
            };
            if !is_counted || credits != expected * price {
                let line = format!(
                    "{expected} photos are {operation}, {count} were counted and {credits} credits charged"
                );
                let kind = if count < expected { &mut self.missing } else { &mut self.surplus };
                kind.push(line);
            }
        }
        Ok(())
    }

    /// Whether nothing is held, where no photo is on its way, and what is spent is what was used.
    fn check_balance(&mut self, client: &Client) -> Result<(), ClientError> {
        let (mut balance, mut used) = (Value::Null, 0);
        let mut is_even = || {
            let read = client.call::<Value>("credits/get", &json!({})).and_then(|now| {
                balance = now;
                used = read_usage(client)?.iter().filter_map(|row| row["credits"].as_u64()).sum::<u64>();
                Ok(())
            });
            read.is_ok() && balance["held"].as_f64() == Some(0.0) && balance["spent"].as_u64() == Some(used)
        };
        if wait_until("nothing is held", SETTLE_TIMEOUT, &mut is_even).is_err() {
            self.other.push(format!(
                "no photo is on its way, {used} credits were used, and the balance is {balance}"
            ));
        }
        Ok(())
    }
}

/// Usage of these days, by album and operation.
fn read_usage(client: &Client) -> Result<Vec<Value>, ClientError> {
    // The clocks of some clusters are wrong.
    let now = OffsetDateTime::now_utc().date();
    let (from, to) = ((now - time::Duration::days(2)).to_string(), (now + time::Duration::DAY).to_string());
    let query = json!({ "from": from, "to": to, "by": ["album", "operation"] });
    let usage: Value = client.call("usage/get", &query)?;
    Ok(usage["rows"].as_array().cloned().unwrap_or_default())
}

/// Compares what was told with the photos of an album.
fn account_of_events(told: &ToldPhotos, listed: &[Photo]) -> Account {
    let mut account = Account { repeated: told.repeated, other: told.invalid.clone(), ..Account::default() };
    let none = BTreeSet::new();
    for photo in listed {
        let expected = match photo.state {
            PhotoState::Ready => Some("photo.ready"),
            PhotoState::Failed => Some("photo.failed"),
            _ => None,
        };
        let events = told.events.get(&photo.id).unwrap_or(&none);
        account.told += usize::from(!events.is_empty());
        let types: Vec<&str> = events.iter().map(|(_, event_type)| event_type.as_str()).collect();
        match (expected, &types[..]) {
            (None, []) => {}
            (Some(expected), [once]) if *once == expected => {}
            // Its confirmation was repeated: see `MAX_FAILURES`.
            (Some("photo.failed"), [first, again]) if first == again && *first == "photo.failed" => {}
            (Some(_), []) => {
                account.missing.push(format!("{} is {:?} and was not told", photo.id, photo.state))
            }
            _ => {
                account.surplus.push(format!("{} is {:?} and was told as {events:?}", photo.id, photo.state))
            }
        }
    }
    account
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn photos_that_were_not_told_or_told_twice_are_reported() {
        let photo = |id: &str, state: &str| -> Photo {
            serde_json::from_value(json!({ "id": id, "state": state })).expect("a photo")
        };
        let listed = [photo("1", "ready"), photo("2", "failed"), photo("3", "awaiting_upload")];
        let tell = |events: &[(&str, &str, &str)]| {
            let mut told = ToldPhotos::default();
            for (photo, event, event_type) in events {
                let of_photo = told.events.entry((*photo).to_owned()).or_default();
                of_photo.insert(((*event).to_owned(), (*event_type).to_owned()));
            }
            let account = account_of_events(&told, &listed);
            (account.told, account.missing.len(), account.surplus.len())
        };
        let fine = [("1", "a", "photo.ready"), ("2", "b", "photo.failed")];
        assert_eq!(tell(&fine), (2, 0, 0));
        assert_eq!(tell(&fine[..1]), (1, 1, 0));
        assert_eq!(tell(&[fine[0], fine[1], ("1", "c", "photo.ready")]), (2, 0, 1));
        let failed_again = ("2", "c", "photo.failed");
        assert_eq!(tell(&[fine[0], fine[1], failed_again]), (2, 0, 0), "it was confirmed again");
        assert_eq!(tell(&[fine[0], fine[1], failed_again, ("2", "d", "photo.failed")]), (2, 0, 1));
        assert_eq!(tell(&[fine[0], ("2", "b", "photo.ready")]), (2, 0, 1));
        assert_eq!(tell(&[fine[0], fine[1], ("3", "c", "photo.ready")]), (3, 0, 1));
    }
}
