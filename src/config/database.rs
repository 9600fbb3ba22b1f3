//! Where the rows lie, and how much of a server is used for them.

use std::path::Path;
use std::time::Duration;

use photofinish_store::{DatabaseKind, ServerLimits};

use super::SettingsParser;
use crate::config::redact::redact_url;
use crate::config::settings::Settings;

impl SettingsParser {
    pub(super) fn database_url(&mut self, given: &Settings, data_dir: &Path) -> String {
        let default = format!("sqlite:{}", data_dir.join("photofinish.sqlite").display());
        let url = given.database_url.clone().unwrap_or(default);
        if DatabaseKind::from_url(&url).is_none() {
            let shown = redact_url(&url);
            self.problems
                .push(format!("PHOTOFINISH_DATABASE_URL={shown}: must begin with sqlite: or postgres:"));
        }
        url
    }

    pub(super) fn server_limits(&mut self, given: &Settings) -> ServerLimits {
        let usual = ServerLimits::default();
        let mut seconds = |name, given, usual: Duration| self.seconds(name, given, usual.as_secs());
        ServerLimits {
            acquire_timeout: seconds(
                "PHOTOFINISH_DATABASE_ACQUIRE_SECONDS",
                &given.database_acquire_seconds,
                usual.acquire_timeout,
            ),
            statement_timeout: seconds(
                "PHOTOFINISH_DATABASE_STATEMENT_SECONDS",
                &given.database_statement_seconds,
                usual.statement_timeout,
            ),
            lock_timeout: seconds(
                "PHOTOFINISH_DATABASE_LOCK_SECONDS",
                &given.database_lock_seconds,
                usual.lock_timeout,
            ),
            // An album that is loaded keeps one, and may wait for searches that need another.
            connections: self
                .whole(
                    "PHOTOFINISH_DATABASE_CONNECTIONS",
                    &given.database_connections,
                    usual.connections.into(),
                )
                .max(MIN_CONNECTIONS) as u32,
        }
    }
}

const MIN_CONNECTIONS: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, ConfigErrors};

    #[test]
    fn a_postgres_url_is_accepted() {
        let with = |url: &str| Settings { database_url: Some(url.into()), ..Settings::default() };
        let config = Config::from_settings(&with("postgresql://photofinish:secret@host/rows")).unwrap();
        assert_eq!(config.server_limits, ServerLimits::default());
        assert!(config.lines().iter().all(|(_, value)| !value.contains("secret")));
        let ConfigErrors(problems) = Config::from_settings(&with("mysql://a:secret@host/rows")).unwrap_err();
        assert!(problems[0].contains("DATABASE_URL") && !problems[0].contains("secret"), "{problems:?}");
    }
}
