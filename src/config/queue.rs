//! The work queue's settings. Knows nothing of the others; the lease's length is theirs.

use std::path::PathBuf;
use std::time::Duration;

use photofinish_store::QueueSettings;

use super::{Config, SettingsParser};
use crate::config::redact::redact_url;
use crate::config::settings::Settings;

/// How often photos are looked for that the queue forgot.
const REPUBLISH_INTERVAL: Duration = Duration::from_secs(60);

/// The stream's name unless another is given: two services may share a server.
const DEFAULT_STREAM: &str = "photofinish";

/// What JetStream allows.
const MAX_REPLICAS: u64 = 5;

impl Config {
    /// What is in force, a variable a line.
    pub(super) fn queue_lines(&self) -> [(&'static str, String); 4] {
        let queue = self.queue.as_ref();
        let shown = |value: Option<String>| value.unwrap_or_default();
        let credentials = queue.and_then(|queue| queue.credentials.as_ref());
        let url = queue.map_or_else(|| redact_url(&self.database_url), |queue| redact_servers(&queue.url));
        [
            ("PHOTOFINISH_QUEUE_URL", url),
            ("PHOTOFINISH_QUEUE_CREDENTIALS", shown(credentials.map(|file| file.display().to_string()))),
            ("PHOTOFINISH_QUEUE_STREAM", shown(queue.map(|queue| queue.stream.clone()))),
            ("PHOTOFINISH_QUEUE_REPLICAS", shown(queue.map(|queue| queue.replicas.to_string()))),
        ]
    }
}

impl SettingsParser {
    /// `None` where the database is the queue.
    pub(super) fn queue(
        &mut self,
        given: &Settings,
        database_url: &str,
        lease_ttl: Duration,
    ) -> Option<QueueSettings> {
        let url = given.queue_url.as_ref().filter(|url| *url != database_url)?;
        let is_known = |url: &str| ["nats://", "tls://"].iter().any(|scheme| url.trim().starts_with(scheme));
        if !url.split(',').all(is_known) {
            self.problems.push(format!(
                "PHOTOFINISH_QUEUE_URL={}: must begin with nats:// or tls://, or be left out: the database is the queue then",
                redact_servers(url)
            ));
        }
        Some(QueueSettings {
            url: url.clone(),
            credentials: given.queue_credentials.as_ref().map(PathBuf::from),
            stream: self.stream(given),
            replicas: self.replicas(given),
            ack_wait: lease_ttl,
            republish_interval: REPUBLISH_INTERVAL,
        })
    }

    fn stream(&mut self, given: &Settings) -> String {
        let name = given.queue_stream.clone().unwrap_or_else(|| DEFAULT_STREAM.to_owned());
        let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        if name.is_empty() || !name.chars().all(is_allowed) {
            self.problems.push(format!("PHOTOFINISH_QUEUE_STREAM={name}: must be letters, digits, - and _"));
        }
        name
    }

    fn replicas(&mut self, given: &Settings) -> usize {
        let replicas = self.whole("PHOTOFINISH_QUEUE_REPLICAS", &given.queue_replicas, 1);
        if replicas > MAX_REPLICAS {
            self.problems
                .push(format!("PHOTOFINISH_QUEUE_REPLICAS={replicas}: must be from 1 to {MAX_REPLICAS}"));
        }
        replicas as usize
    }
}

/// Each server's URL without its password or token.
fn redact_servers(urls: &str) -> String {
    let servers: Vec<String> = urls
        .split(',')
        .map(|server| match url::Url::parse(server.trim()) {
            // A user without a password is a token.
            Ok(mut url) if !url.username().is_empty() && url.password().is_none() => {
                if url.set_username("masked").is_err() {
                    return "masked".to_owned();
                }
                url.to_string()
            }
            _ => redact_url(server.trim()),
        })
        .collect();
    servers.join(",")
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    use super::*;

    fn with_queue(url: &str) -> Settings {
        Settings { queue_url: Some(url.into()), ..Settings::default() }
    }

    #[test]
    fn without_a_url_the_database_is_the_queue() {
        assert!(Config::from_settings(&Settings::default()).unwrap().queue.is_none());
        let config = Config::from_settings(&with_queue("sqlite:data/photofinish.sqlite")).unwrap();
        assert!(config.queue.is_none());
    }

    #[test]
    fn a_nats_url_gets_the_default_stream_and_replicas() {
        let config = Config::from_settings(&with_queue("nats://a:4222,tls://b:4222")).unwrap();
        let queue = config.queue.unwrap();
        assert_eq!((queue.stream.as_str(), queue.replicas), ("photofinish", 1));
        assert_eq!(queue.ack_wait, config.times.lease_ttl);
    }

    #[test]
    fn an_invalid_queue_is_refused_without_showing_secrets() {
        let given = Settings {
            queue_stream: Some("photo.finish".into()),
            queue_replicas: Some("7".into()),
            ..with_queue("nats://ok,amqp://user:secret@host")
        };
        let problems = Config::from_settings(&given).unwrap_err().0;
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(!problems.concat().contains("secret"), "{problems:?}");
    }

    #[test]
    fn tokens_and_passwords_are_masked() {
        let shown = redact_servers("nats://secret@a:4222, nats://user:secret@b:4222,nats://c");
        assert!(!shown.contains("secret") && shown.contains("user") && shown.contains("nats://c"), "{shown}");
    }
}
