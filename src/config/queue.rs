//! Settings of the work queue.

use std::path::PathBuf;

use super::parsers;

/// The heading of what every role needs to know of the queue.
pub(super) const QUEUE_HEADING: &str = "Work queue (roles all, serve, work)";

/// Settings of the work queue.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = QUEUE_HEADING)]
pub struct QueueArguments {
    /// Work queue: nats://HOST:4222 or tls://HOST:4222, several separated by commas, with USER:PASSWORD@ or TOKEN@ [default: the database]
    #[arg(long, env = "PHOTOFINISH_QUEUE_URL", value_name = "URL", hide_env_values = true)]
    pub queue_url: Option<String>,
    /// NATS: credentials file (.creds) [default: none]
    #[arg(long, env = "PHOTOFINISH_QUEUE_CREDENTIALS", value_name = "FILE")]
    pub queue_credentials: Option<PathBuf>,
    /// NATS: name of the stream; two installations on one server need two names
    #[arg(long, env = "PHOTOFINISH_QUEUE_STREAM", value_name = "NAME", default_value = "photofinish")]
    #[arg(value_parser = parsers::stream_name)]
    pub queue_stream: String,
    /// NATS: number of servers that store the stream
    #[arg(long, env = "PHOTOFINISH_QUEUE_REPLICAS", value_name = "COUNT", default_value = "1")]
    #[arg(value_parser = parsers::replicas)]
    pub queue_replicas: usize,
    /// How many times a photo may end its worker before it fails
    #[arg(long, env = "PHOTOFINISH_ATTEMPT_LIMIT", value_name = "COUNT", default_value = "3")]
    #[arg(value_parser = parsers::count)]
    pub attempt_limit: u64,
}

#[cfg(test)]
mod tests {
    use crate::config::tests::{config, problems};

    const URL: &str = "PHOTOFINISH_QUEUE_URL";

    #[test]
    fn without_a_url_the_database_is_the_queue() {
        assert!(config::<&str>(&[]).unwrap().queue.is_none());
        assert!(config(&[(URL, "sqlite:data/photofinish.sqlite")]).unwrap().queue.is_none());
    }

    #[test]
    fn a_nats_url_gets_the_default_stream_and_replicas() {
        let config = config(&[(URL, "nats://a:4222,tls://b:4222")]).unwrap();
        let queue = config.queue.unwrap();
        assert_eq!((queue.stream.as_str(), queue.replicas), ("photofinish", 1));
        assert_eq!(queue.ack_wait, config.settings.pipeline.lease_ttl);
    }

    #[test]
    fn an_invalid_queue_is_refused_without_showing_secrets() {
        let problems = problems(&[
            (URL, "nats://ok,amqp://user:secret@host"),
            ("PHOTOFINISH_QUEUE_STREAM", "photo.finish"),
            ("PHOTOFINISH_QUEUE_REPLICAS", "7"),
        ]);
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(!problems.concat().contains("secret"), "{problems:?}");
    }
}
