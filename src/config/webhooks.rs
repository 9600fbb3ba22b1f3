//! Settings of webhooks and of the secret that their secrets are sealed with.

use std::fmt;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::parsers::Choice;
use crate::events::addresses::{AddressRules, AllowedTarget};

const SWITCH: Choice<bool> = Choice(&[("on", true), ("off", false)]);

/// Settings of webhooks.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Webhooks (roles all, serve)")]
pub struct WebhookArguments {
    /// Seals the secrets in the database; needed for webhooks with Postgres [default: with SQLite secrets/master.key in the data folder]
    #[arg(long, env = "PHOTOFINISH_SECRET_KEY", value_name = "KEY", hide_env_values = true)]
    #[arg(value_parser = secret_source)]
    pub secret_key: Option<SecretSource>,
    /// The key before it, until photofinish secret reseal has run [default: none]
    #[arg(long, env = "PHOTOFINISH_SECRET_KEY_OLD", value_name = "KEY", hide_env_values = true)]
    #[arg(value_parser = secret_source)]
    pub secret_key_old: Option<SecretSource>,
    /// Where webhooks may be beside public addresses, separated by commas [default: nowhere]
    #[arg(long, env = "PHOTOFINISH_WEBHOOK_ALLOW", value_name = "TARGETS", value_parser = allowed_targets)]
    pub webhook_allow: Option<AllowedTargets>,
    /// Whether the URL of a webhook may begin with http://, for a trial on one machine
    #[arg(long, env = "PHOTOFINISH_WEBHOOK_HTTP", value_name = "SWITCH", default_value = "off")]
    #[arg(value_parser = SWITCH, action = clap::ArgAction::Set)]
    pub webhook_http: bool,
}

impl WebhookArguments {
    /// Where webhooks may be.
    pub fn address_rules(&self) -> AddressRules {
        let allowed = self.webhook_allow.clone().map(|targets| targets.0).unwrap_or_default();
        AddressRules { allowed, allows_http: self.webhook_http }
    }
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

/// The exceptions of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedTargets(pub Vec<AllowedTarget>);

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

fn allowed_targets(text: &str) -> Result<AllowedTargets, String> {
    let refused = || {
        "must be networks or hosts with ports, separated by commas, such as 10.1.0.0/16,receiver.internal:8443"
            .to_owned()
    };
    let targets = text.split(',').map(|target| AllowedTarget::parse(target.trim()));
    targets.collect::<Option<Vec<_>>>().map(AllowedTargets).ok_or_else(refused)
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
    fn exceptions_are_networks_and_hosts_with_ports() {
        let config = config(&[("PHOTOFINISH_WEBHOOK_ALLOW", "10.1.0.0/16, receiver.internal:8443")]).unwrap();
        assert_eq!(config.settings.webhooks.address_rules().allowed.len(), 2);
        for wrong in ["", "10.1.0.0", "receiver", "10.0.0.0/8,,"] {
            assert_eq!(problems(&[("PHOTOFINISH_WEBHOOK_ALLOW", wrong)]).len(), 1, "{wrong}");
        }
    }
}
