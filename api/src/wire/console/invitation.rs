//! Links that let a person in.

use photofinish_store::model::account::{Link, LinkPurpose};
use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use utoipa::ToSchema;
use utoipa::openapi::schema::Object;

use super::account::{read_name, role_schema};
use crate::validate::input::{Fields, Input};
use crate::validate::validators::text;
use crate::wire::{Output, sample, string_enum};

/// A link that has not been used.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Invitation {
    email: String,
    organization: String,
    #[schema(schema_with = role_schema)]
    role: String,
    /// `welcome` and `reset` ask for a password; `enter` does not.
    #[schema(schema_with = purpose_schema)]
    purpose: String,
    #[serde(with = "time::serde::rfc3339")]
    expires_at: OffsetDateTime,
}

fn purpose_schema() -> Object {
    string_enum(LinkPurpose::ALL.map(LinkPurpose::as_str))
}

impl From<Link> for Invitation {
    fn from(link: Link) -> Self {
        Self {
            email: link.account.email,
            organization: link.account.organization_name,
            role: link.account.role.as_str().to_owned(),
            purpose: link.purpose.as_str().to_owned(),
            expires_at: link.expires_at,
        }
    }
}

impl Output for Invitation {
    fn example() -> Self {
        Self {
            email: "anna@race.example".to_owned(),
            organization: "Lake Timing".to_owned(),
            role: "owner".to_owned(),
            purpose: "welcome".to_owned(),
            expires_at: sample::TIME,
        }
    }
}

/// Body of `invitation/get`.
pub(crate) struct GetInvitation {
    pub(crate) token: String,
}

fn read_token(fields: &mut Fields<'_>) -> Option<String> {
    fields.required("token", "The last part of the link.", text(1, 100))
}

impl Input for GetInvitation {
    const NAME: &'static str = "GetInvitation";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self { token: read_token(fields)? })
    }

    fn example() -> Value {
        json!({ "token": "3q2-7w" })
    }
}

/// Body of `invitation/accept`.
pub(crate) struct AcceptInvitation {
    pub(crate) token: String,
    pub(crate) password: Option<String>,
    pub(crate) name: Option<String>,
}

impl Input for AcceptInvitation {
    const NAME: &'static str = "AcceptInvitation";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let token = read_token(fields);
        let password = fields.optional("password", "The new password.", text(0, 1000));
        let name = read_name(fields);
        Some(Self { token: token?, password, name })
    }

    fn example() -> Value {
        json!({ "token": "3q2-7w", "password": "four wet dogs run" })
    }
}
