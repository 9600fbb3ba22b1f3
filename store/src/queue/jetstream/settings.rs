//! Where the servers are, who we are to them and how long they wait; what follows from it is derived here.

use std::path::PathBuf;
use std::time::Duration;

use async_nats::{ConnectOptions, ServerAddr};
use url::Url;

use crate::error::{StoreError, StoreErrorKind};
use crate::traits::Result;

/// What [`crate::Store::open`] needs to know of a queue beside the database.
#[derive(Clone, Debug)]
pub struct QueueSettings {
    /// `nats://host:4222` or `tls://host:4222`, several separated by commas; a user and password, or a token in the
    /// place of the user, in the first one count for all.
    pub url: String,
    /// A credentials file (`.creds`), where the servers know users by key.
    pub credentials: Option<PathBuf>,
    /// The stream's name: letters, digits, `-` and `_`. Its messages have the subject `<name>.work`.
    pub stream: String,
    /// On how many servers the stream is kept.
    pub replicas: usize,
    /// How long a worker may be silent before its messages are delivered to others; that of the leases, so that both
    /// end together.
    pub ack_wait: Duration,
    /// How often the sweeper looks for photos that the stream forgot.
    pub republish_interval: Duration,
}

impl QueueSettings {
    /// How long the stream knows a message it has had. Long enough for a publisher that died between publishing and
    /// noting it to be replaced, and shorter than [`Self::grace`]: what the sweeper lets be published again must not
    /// be dropped as known.
    pub(crate) fn duplicate_window(&self) -> Duration {
        self.republish_interval
    }

    /// How long ago a photo has to be published before its absence from the stream means anything: covers the time
    /// from the stream's answer to the commit that notes it, and clocks that do not agree.
    pub(crate) fn grace(&self) -> Duration {
        self.republish_interval * 3 / 2
    }

    /// After so long a photo that still waits is published again, whatever the stream holds.
    pub(crate) fn republish_after(&self) -> Duration {
        self.republish_interval * 10
    }

    /// When a message whose photo another worker has is looked at again. Most photos end in far less than a lease.
    pub(crate) fn redelivery_delay(&self) -> Duration {
        self.ack_wait / 4
    }

    /// The servers' addresses.
    pub(crate) fn server_addresses(&self) -> Result<Vec<ServerAddr>> {
        self.parse_urls()?
            .into_iter()
            .map(|mut url| {
                // Who we are is said in the options; an address with a name in it would show up in logs.
                if url.set_username("").is_err() || url.set_password(None).is_err() {
                    return Err(invalid_url());
                }
                url.as_str().parse().map_err(|cause: std::io::Error| invalid_url().with_source(cause))
            })
            .collect()
    }

    /// Who we are to the servers.
    pub(crate) async fn connect_options(&self) -> Result<ConnectOptions> {
        let first = self.parse_urls()?.swap_remove(0);
        let options = match (first.username(), first.password()) {
            ("", _) => ConnectOptions::new(),
            (token, None) => ConnectOptions::with_token(percent_decode(token)?),
            (user, Some(password)) => {
                ConnectOptions::with_user_and_password(percent_decode(user)?, percent_decode(password)?)
            }
        };
        match &self.credentials {
            None => Ok(options),
            Some(file) => options.credentials_file(file).await.map_err(|cause| {
                StoreError::new(StoreErrorKind::Corrupt, format!("queue credentials {}", file.display()))
                    .with_source(cause)
            }),
        }
    }

    /// One at least.
    fn parse_urls(&self) -> Result<Vec<Url>> {
        self.url
            .split(',')
            .map(|text| {
                let url = Url::parse(text.trim()).map_err(|cause| invalid_url().with_source(cause))?;
                let is_known = matches!(url.scheme(), "nats" | "tls") && url.host().is_some();
                is_known.then_some(url).ok_or_else(invalid_url)
            })
            .collect()
    }
}

/// Without the URL: it may hold a password.
fn invalid_url() -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, "queue url (must be nats://host:port or tls://host:port)")
}

/// A part of a URL without its percent signs.
fn percent_decode(part: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let byte = match (first, after) {
            (b'%', [high, low, ..]) => {
                rest = &after[2..];
                let digits = [*high, *low];
                hex::decode(digits).map_err(|cause| invalid_url().with_source(cause))?[0]
            }
            _ => {
                rest = after;
                *first
            }
        };
        bytes.push(byte);
    }
    String::from_utf8(bytes).map_err(|cause| invalid_url().with_source(cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings_with_url(url: &str) -> QueueSettings {
        QueueSettings {
            url: url.into(),
            credentials: None,
            stream: "photofinish".into(),
            replicas: 1,
            ack_wait: Duration::from_secs(60),
            republish_interval: Duration::from_secs(60),
        }
    }

    #[tokio::test]
    async fn a_url_contains_servers_and_credentials() {
        let settings = settings_with_url("nats://us%2Fer:p%40ss@one:4222, tls://two:4223");
        let servers = settings.server_addresses().unwrap();
        assert_eq!(servers.iter().map(ServerAddr::host).collect::<Vec<_>>(), ["one", "two"]);
        assert_eq!(servers.iter().map(ServerAddr::port).collect::<Vec<_>>(), [4222, 4223]);
        assert!(servers.iter().all(|server| !server.has_user_pass() && server.password().is_none()));
        assert!(!servers[0].tls_required() && servers[1].tls_required());
        settings.connect_options().await.unwrap();
        assert_eq!(percent_decode("us%2Fer").unwrap(), "us/er");
        assert_eq!(percent_decode("p%40ss").unwrap(), "p@ss");
        settings_with_url("nats://token@one:4222").connect_options().await.unwrap();
    }

    #[tokio::test]
    async fn urls_of_other_kinds_are_refused_without_their_secrets() {
        for url in ["", "amqp://a:secret@b", "nats:", "nats://one,redis://two:secret@three"] {
            let error = settings_with_url(url).server_addresses().unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Corrupt);
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
        let lost =
            QueueSettings { credentials: Some("no/such.creds".into()), ..settings_with_url("nats://one") };
        assert!(lost.connect_options().await.err().unwrap().to_string().contains("no/such.creds"));
    }

    #[test]
    fn a_republished_photo_is_not_dropped_as_a_duplicate() {
        let settings = settings_with_url("nats://one");
        assert!(settings.grace() > settings.duplicate_window());
        assert!(settings.republish_after() > settings.grace());
    }
}
