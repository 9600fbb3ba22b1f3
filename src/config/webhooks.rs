//! Settings of webhooks.

use super::parsers::ON_OFF;
use crate::events::addresses::{AddressRules, AllowedTarget};

/// Settings of webhooks.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Webhooks (roles all, serve)")]
pub struct WebhookArguments {
    /// Where webhooks may be beside public addresses, separated by commas [default: nowhere]
    #[arg(long, env = "PHOTOFINISH_WEBHOOK_ALLOW", value_name = "TARGETS", value_parser = allowed_targets)]
    pub webhook_allow: Option<AllowedTargets>,
    /// Whether the URL of a webhook may begin with http://, for a trial on one machine
    #[arg(long, env = "PHOTOFINISH_WEBHOOK_HTTP", value_name = "ON_OFF", default_value = "off")]
    #[arg(value_parser = ON_OFF, action = clap::ArgAction::Set)]
    pub webhook_http: bool,
}

impl WebhookArguments {
    /// Where webhooks may be.
    pub fn address_rules(&self) -> AddressRules {
        let allowed = self.webhook_allow.clone().map(|targets| targets.0).unwrap_or_default();
        AddressRules { allowed, allows_http: self.webhook_http }
    }
}

/// The exceptions of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedTargets(pub Vec<AllowedTarget>);

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
    fn exceptions_are_networks_and_hosts_with_ports() {
        let config = config(&[("PHOTOFINISH_WEBHOOK_ALLOW", "10.1.0.0/16, receiver.internal:8443")]).unwrap();
        assert_eq!(config.settings.webhooks.address_rules().allowed.len(), 2);
        for wrong in ["", "10.1.0.0", "receiver", "10.0.0.0/8,,"] {
            assert_eq!(problems(&[("PHOTOFINISH_WEBHOOK_ALLOW", wrong)]).len(), 1, "{wrong}");
        }
    }
}
