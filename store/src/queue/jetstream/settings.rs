//! Settings of the NATS servers and the work stream, and the times derived from them.

use std::path::PathBuf;
use std::time::Duration;

use async_nats::{ConnectOptions, ServerAddr};
use url::Url;

use crate::error::{StoreError, StoreErrorKind};
use crate::traits::Result;

/// Settings of a message queue beside the database.
#[derive(Clone, Debug)]
pub struct QueueSettings {
    /// `nats://host:4222` or `tls://host:4222`, several separated by commas. User and password, or a token in place of
    /// the user, are taken from the first one and used for all.
    pub url: String,
    /// A credentials file (`.creds`), for servers that authenticate users by key.
    pub credentials: Option<PathBuf>,
    /// The stream's name: letters, digits, `-` and `_`. Its messages have the subject `<name>.work`.
    pub stream: String,
    /// Number of servers that store the stream.
    pub replicas: usize,
    /// How long a worker may leave a message unacknowledged before it is delivered to another; equal to the lease time,
    /// so that both expire together.
    pub ack_wait: Duration,
    /// How often the republisher looks for photos whose messages were lost.
    pub republish_interval: Duration,
}

impl QueueSettings {
    /// How long the stream drops copies of a message. Long enough to replace a publisher that died between publishing and
    /// marking, and shorter than [`Self::grace`]: a republished message must not be dropped as a copy.
    pub(crate) fn duplicate_window(&self) -> Duration {
        self.republish_interval
    }

    /// How long ago a photo must have been published for its absence from the stream to count: covers the time from the
    /// stream's acknowledgement to the commit that marks the photo, and the difference between clocks.
    pub(crate) fn grace(&self) -> Duration {
        self.republish_interval * 3 / 2
    }

    /// How long after its publication a waiting photo is published again, whatever the stream contains.
    pub(crate) fn republish_after(&self) -> Duration {
        self.republish_interval * 10
    }

    /// When a message whose photo another worker has leased is delivered again. Most photos take far less than a lease.
    pub(crate) fn redelivery_delay(&self) -> Duration {
        self.ack_wait / 4
    }

    /// Returns the addresses of the servers, without credentials.
    pub(crate) fn server_addresses(&self) -> Result<Vec<ServerAddr>> {
        self.parse_urls()?
            .into_iter()
            .map(|mut url| {
                // Credentials go into the options; those in an address would appear in logs.
                if url.set_username("").is_err() || url.set_password(None).is_err() {
                    return Err(invalid_url());
                }
                url.as_str().parse().map_err(|cause: std::io::Error| invalid_url().with_source(cause))
            })
            .collect()
    }

    /// Returns the connection options with the credentials.
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
                StoreError::new(StoreErrorKind::Invalid, format!("queue credentials {}", file.display()))
                    .with_source(cause)
            }),
        }
    }

    /// Returns at least one URL.
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

/// Returns an error without the URL, because it may contain a password.
fn invalid_url() -> StoreError {
    StoreError::new(StoreErrorKind::Invalid, "queue url (must be nats://host:port or tls://host:port)")
}

/// Decodes percent-encoding in a part of a URL.
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
            assert_eq!(error.kind, StoreErrorKind::Invalid);
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
        let missing_file =
            QueueSettings { credentials: Some("no/such.creds".into()), ..settings_with_url("nats://one") };
        assert!(missing_file.connect_options().await.err().unwrap().to_string().contains("no/such.creds"));
    }

    #[test]
    fn a_republished_photo_is_not_dropped_as_a_duplicate() {
        let settings = settings_with_url("nats://one");
        assert!(settings.grace() > settings.duplicate_window());
        assert!(settings.republish_after() > settings.grace());
    }
}
