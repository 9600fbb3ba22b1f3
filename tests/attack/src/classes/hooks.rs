//! A webhook that no machine answers: nobody listens on its port, which is this machine's own, so that each attempt fails at
//! once.

use photofinish_tests::harness::Partner;
use serde_json::{Value, json};

use super::class::Setting;

const URL: &str = "https://127.0.0.1:19443/hook";

/// Permits the webhook.
pub(super) const ALLOW_HOOK: Setting =
    Setting { name: "PHOTOFINISH_WEBHOOK_ALLOW", value: "127.0.0.1:19443" };

/// Creates the webhook, which is told nothing that happens in an attack; returns its id.
pub(super) fn create_hook(partner: &Partner, label: &str) -> Value {
    let input = json!({ "url": URL, "label": label, "types": ["credits.low"] });
    partner.call_ok("/webhooks/create", &input)["id"].take()
}

/// Tests the webhook; returns the id of the delivery.
pub(super) fn test_hook(partner: &Partner, webhook: &Value) -> Value {
    partner.call_ok("/webhooks/test", &json!({ "webhookId": webhook }))["id"].take()
}
