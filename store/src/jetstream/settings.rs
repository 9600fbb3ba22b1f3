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
    pub sweep_every: Duration,
}

impl QueueSettings {
    /// How long the stream knows a message it has had. Long enough for a publisher that died between publishing and
    /// noting it to be replaced, and shorter than [`Self::grace`]: what the sweeper lets be published again must not
    /// be dropped as known.
    pub(super) fn duplicate_window(&self) -> Duration {
        self.sweep_every
    }

    /// How long ago a photo has to be published before its absence from the stream means anything: covers the time
    /// from the stream's answer to the commit that notes it, and clocks that do not agree.
    pub(super) fn grace(&self) -> Duration {
        self.sweep_every * 3 / 2
    }

    /// After so long a photo that still waits is published again, whatever the stream holds.
    pub(super) fn long_ago(&self) -> Duration {
        self.sweep_every * 10
    }

    /// When a message whose photo another worker has is looked at again. Most photos end in far less than a lease.
    pub(super) fn look_again(&self) -> Duration {
        self.ack_wait / 4
    }

    /// The servers' addresses.
    pub(super) fn servers(&self) -> Result<Vec<ServerAddr>> {
        self.urls()?
            .into_iter()
            .map(|mut url| {
                // Who we are is said in the options; an address with a name in it would show up in logs.
                if url.set_username("").is_err() || url.set_password(None).is_err() {
                    return Err(refused());
                }
                url.as_str().parse().map_err(|cause: std::io::Error| refused().because(cause))
            })
            .collect()
    }

    /// Who we are to the servers.
    pub(super) async fn options(&self) -> Result<ConnectOptions> {
        let first = self.urls()?.swap_remove(0);
        let options = match (first.username(), first.password()) {
            ("", _) => ConnectOptions::new(),
            (token, None) => ConnectOptions::with_token(decoded(token)?),
            (user, Some(password)) => {
                ConnectOptions::with_user_and_password(decoded(user)?, decoded(password)?)
            }
        };
        match &self.credentials {
            None => Ok(options),
            Some(file) => options.credentials_file(file).await.map_err(|cause| {
                StoreError::new(StoreErrorKind::Corrupt, format!("queue credentials {}", file.display()))
                    .because(cause)
            }),
        }
    }

    /// One at least.
    fn urls(&self) -> Result<Vec<Url>> {
        self.url
            .split(',')
            .map(|text| {
                let url = Url::parse(text.trim()).map_err(|cause| refused().because(cause))?;
                let is_known = matches!(url.scheme(), "nats" | "tls") && url.host().is_some();
                is_known.then_some(url).ok_or_else(refused)
            })
            .collect()
    }
}

/// Without the URL: it may hold a password.
fn refused() -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, "queue url (must be nats://host:port or tls://host:port)")
}

/// A part of a URL without its percent signs.
fn decoded(part: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let byte = match (first, after) {
            (b'%', [high, low, ..]) => {
                rest = &after[2..];
                let digits = [*high, *low];
                hex::decode(digits).map_err(|cause| refused().because(cause))?[0]
            }
            _ => {
                rest = after;
                *first
            }
        };
        bytes.push(byte);
    }
    String::from_utf8(bytes).map_err(|cause| refused().because(cause))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_url(url: &str) -> QueueSettings {
        QueueSettings {
            url: url.into(),
            credentials: None,
            stream: "photofinish".into(),
            replicas: 1,
            ack_wait: Duration::from_secs(60),
            sweep_every: Duration::from_secs(60),
        }
    }

    #[tokio::test]
    async fn a_url_names_servers_and_says_who_we_are() {
        let settings = with_url("nats://us%2Fer:p%40ss@one:4222, tls://two:4223");
        let servers = settings.servers().unwrap();
        assert_eq!(servers.iter().map(ServerAddr::host).collect::<Vec<_>>(), ["one", "two"]);
        assert_eq!(servers.iter().map(ServerAddr::port).collect::<Vec<_>>(), [4222, 4223]);
        assert!(servers.iter().all(|server| !server.has_user_pass() && server.password().is_none()));
        assert!(!servers[0].tls_required() && servers[1].tls_required());
        settings.options().await.unwrap();
        assert_eq!(decoded("us%2Fer").unwrap(), "us/er");
        assert_eq!(decoded("p%40ss").unwrap(), "p@ss");
        with_url("nats://token@one:4222").options().await.unwrap();
    }

    #[tokio::test]
    async fn urls_of_other_kinds_are_refused_without_their_secrets() {
        for url in ["", "amqp://a:secret@b", "nats:", "nats://one,redis://two:secret@three"] {
            let error = with_url(url).servers().unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Corrupt);
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
        let lost = QueueSettings { credentials: Some("no/such.creds".into()), ..with_url("nats://one") };
        assert!(lost.options().await.err().unwrap().to_string().contains("no/such.creds"));
    }

    #[test]
    fn what_is_published_again_is_not_dropped_as_known() {
        let settings = with_url("nats://one");
        assert!(settings.grace() > settings.duplicate_window());
        assert!(settings.long_ago() > settings.grace());
    }
}
