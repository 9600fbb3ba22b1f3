//! Settings of the secret from which the keys are derived that seal and sign, and of what receipts of erasures say.

use std::fmt;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::parsers;

/// Settings of the master secret and of receipts.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Secrets and receipts (roles all, serve, work)")]
pub struct SecretArguments {
    /// Seals the secrets in the database; with Postgres webhooks, galleries and receipts of erasures need it, and replicas know each other's paid cursors and wrong passwords only with it [default: with SQLite secrets/master.key in the data folder]
    #[arg(long, env = "PHOTOFINISH_SECRET_KEY", value_name = "KEY", hide_env_values = true)]
    #[arg(value_parser = secret_source)]
    pub secret_key: Option<SecretSource>,
    /// The key before it, until photofinish secret reseal has run [default: none]
    #[arg(long, env = "PHOTOFINISH_SECRET_KEY_OLD", value_name = "KEY", hide_env_values = true)]
    #[arg(value_parser = secret_source)]
    pub secret_key_old: Option<SecretSource>,
    /// For how many days backups of database and storage are kept, for receipts of erasures [default: receipts say that backups are not covered]
    #[arg(long, env = "PHOTOFINISH_BACKUP_DAYS", value_name = "DAYS", value_parser = parsers::backup_days)]
    pub backup_days: Option<u32>,
}

/// Where a secret of 32 bytes is.
#[derive(Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// In the setting itself.
    Given([u8; 32]),
    /// In a file, bare or in base64.
    File(PathBuf),
}

/// Shows no secret.
impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(_) => f.write_str("masked"),
            Self::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

/// Decodes a secret as settings and files have it.
pub fn decode_secret(text: &str) -> Option<[u8; 32]> {
    STANDARD.decode(text.trim()).ok()?.try_into().ok()
}

fn secret_source(text: &str) -> Result<SecretSource, String> {
    if let Some(path) = text.strip_prefix("file:").filter(|path| !path.is_empty()) {
        return Ok(SecretSource::File(path.into()));
    }
    let refused = || "must be 32 bytes in base64, or file: and the name of a file with them".to_owned();
    decode_secret(text).map(SecretSource::Given).ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use crate::config::tests::{config, problems};

    #[test]
    fn a_secret_key_is_32_bytes_in_base64_or_a_file_and_is_never_printed() {
        let key = "bWFzdGVyIHNlY3JldCBvZiB0aGlydHktdHdvIGJ5dGU=";
        let given =
            config(&[("PHOTOFINISH_SECRET_KEY", key), ("PHOTOFINISH_SECRET_KEY_OLD", "file:/run/old.key")]);
        let given = given.unwrap();
        let lines = given.lines();
        let value = |name: &str| lines.iter().find(|(known, _)| known == name).unwrap().1.clone();
        assert_eq!(value("PHOTOFINISH_SECRET_KEY"), "masked");
        assert_eq!(value("PHOTOFINISH_SECRET_KEY_OLD"), "file:/run/old.key");
        assert!(!format!("{:?}", given.settings).contains(key));
        for wrong in ["", "secret", "file:", "bWFzdGVy"] {
            let problems = problems(&[("PHOTOFINISH_SECRET_KEY", wrong)]);
            assert!(problems.len() == 1 && problems[0].contains("must be 32 bytes"), "{problems:?}");
        }
    }

    #[test]
    fn backups_are_kept_for_whole_days() {
        let given = config(&[("PHOTOFINISH_BACKUP_DAYS", "35")]).unwrap();
        assert_eq!(given.settings.secrets.backup_days, Some(35));
        assert_eq!(config::<&str>(&[]).unwrap().settings.secrets.backup_days, None);
        assert_eq!(problems(&[("PHOTOFINISH_BACKUP_DAYS", "0")]).len(), 1);
    }
}
