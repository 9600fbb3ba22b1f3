//! Accounts.

use photofinish_store::model::account::{Account as Stored, AccountChange, Role};
use photofinish_store::model::ids::AccountId;
use serde::Serialize;
use serde_json::{Value, json};
use time::OffsetDateTime;
use utoipa::ToSchema;
use utoipa::openapi::schema::Object;
use uuid::{Uuid, uuid as uuid_of};

use crate::validate::input::{Fields, Input, nested};
use crate::validate::validators::{Boolean, Nullable, OneOf, Text, formatted, text, uuid};
use crate::wire::{Output, sample, string_enum};

/// The longest address, characters (RFC 5321).
const MAX_EMAIL: usize = 254;

pub(super) const SAMPLE_ACCOUNT: AccountId = AccountId(uuid_of!("01932c0f-76a8-73b7-9b80-94c5d6e7f809"));

/// An account of a person.
#[derive(Clone, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Account {
    id: Uuid,
    email: String,
    name: String,
    #[schema(schema_with = role_schema)]
    role: String,
    /// Whether it sees the health of the whole service and grants credits.
    operator: bool,
    /// The language of the console; null for that of the browser.
    #[schema(required)]
    language: Option<String>,
    disabled: bool,
    /// Whether no password was chosen yet.
    invited: bool,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
    #[schema(required)]
    #[serde(with = "time::serde::rfc3339::option")]
    last_seen_at: Option<OffsetDateTime>,
}

/// Returns the schema of a role.
pub(super) fn role_schema() -> Object {
    string_enum(Role::ALL.map(Role::as_str))
}

impl From<Stored> for Account {
    fn from(stored: Stored) -> Self {
        Self {
            id: stored.id.0,
            email: stored.email,
            name: stored.name,
            role: stored.role.as_str().to_owned(),
            operator: stored.is_operator,
            language: stored.language,
            disabled: stored.disabled_at.is_some(),
            invited: !stored.has_password,
            created_at: stored.created_at,
            last_seen_at: stored.last_seen_at,
        }
    }
}

impl Output for Account {
    fn example() -> Self {
        Self {
            id: SAMPLE_ACCOUNT.0,
            email: "anna@race.example".to_owned(),
            name: "Anna".to_owned(),
            role: Role::Owner.as_str().to_owned(),
            operator: false,
            language: Some("de".to_owned()),
            disabled: false,
            invited: false,
            created_at: sample::TIME,
            last_seen_at: Some(sample::TIME),
        }
    }
}

/// The accounts of the organization, oldest first.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AccountPage {
    accounts: Vec<Account>,
    /// Always null: all are on one page.
    #[schema(required)]
    next_cursor: Option<String>,
    #[schema(value_type = f64, minimum = 0)]
    total: u64,
}

impl From<Vec<Stored>> for AccountPage {
    fn from(stored: Vec<Stored>) -> Self {
        let accounts: Vec<Account> = stored.into_iter().map(Account::from).collect();
        Self { total: accounts.len() as u64, accounts, next_cursor: None }
    }
}

impl Output for AccountPage {
    fn example() -> Self {
        Self { accounts: vec![Account::example()], next_cursor: None, total: 1 }
    }
}

/// An account with a link for its person, which is shown this once.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InvitedAccount {
    pub(crate) account: Account,
    /// Where the person chooses a password.
    pub(crate) link: String,
    #[serde(with = "time::serde::rfc3339")]
    pub(crate) expires_at: OffsetDateTime,
}

impl Output for InvitedAccount {
    fn example() -> Self {
        Self {
            account: Account::example(),
            link: "https://photos.example/console/welcome/3q2-7w".to_owned(),
            expires_at: sample::TIME,
        }
    }
}

/// Reads the field `email`; in lower case.
pub(crate) fn read_email(fields: &mut Fields<'_>) -> Option<String> {
    let email = fields.required("email", "The address of the person.", email_text())?;
    Some(email.trim().to_lowercase())
}

fn email_text() -> Text {
    formatted(MAX_EMAIL, r"^\s*[^@\s]+@[^@\s]+\s*$", |text| {
        let parts: Vec<&str> = text.trim().split('@').collect();
        let is_address = parts.len() == 2 && parts.iter().all(|part| !part.is_empty());
        let is_plain = !text.trim().chars().any(|c| c.is_whitespace() || c.is_control());
        if is_address && is_plain { Ok(()) } else { Err("must be an address of e-mail".to_owned()) }
    })
}

fn role() -> OneOf<Role> {
    OneOf { choices: &Role::ALL, to_name: Role::as_str }
}

/// Reads the field `name`.
pub(crate) fn read_name(fields: &mut Fields<'_>) -> Option<String> {
    fields.optional("name", "The name of the person.", text(0, 200))
}

/// Body of `accounts/invite`.
pub(crate) struct InviteAccount {
    pub(crate) email: String,
    pub(crate) role: Role,
}

impl Input for InviteAccount {
    const NAME: &'static str = "InviteAccount";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let email = read_email(fields);
        let role = fields.required("role", "What the person may do.", role());
        Some(Self { email: email?, role: role? })
    }

    fn example() -> Value {
        json!({ "email": "anna@race.example", "role": "organizer" })
    }
}

/// Body of `accounts/reset`.
pub(crate) struct OneAccount {
    pub(crate) account: AccountId,
}

impl Input for OneAccount {
    const NAME: &'static str = "OneAccount";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let account = fields.required("accountId", "The account.", uuid());
        Some(Self { account: account? })
    }

    fn example() -> Value {
        json!({ "accountId": SAMPLE_ACCOUNT })
    }
}

/// Body of `accounts/update`.
pub(crate) struct UpdateAccount {
    pub(crate) account: AccountId,
    pub(crate) change: AccountChange,
}

impl Input for UpdateAccount {
    const NAME: &'static str = "UpdateAccount";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let account = fields.required("accountId", "The account.", uuid());
        let role = fields.optional("role", "What the person may do.", role());
        let disabled = fields.optional("disabled", "Whether the account cannot be used.", Boolean);
        Some(Self { account: account?, change: AccountChange { role, disabled, ..AccountChange::default() } })
    }

    fn example() -> Value {
        json!({ "accountId": SAMPLE_ACCOUNT, "role": "viewer" })
    }
}

/// A change of the own password.
pub(crate) struct PasswordChange {
    pub(crate) current: String,
    pub(crate) new: String,
}

impl Input for PasswordChange {
    const NAME: &'static str = "PasswordChange";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let current = fields.required("current", "The password until now.", text(0, 1000));
        let new = fields.required("new", "The password from now on.", text(0, 1000));
        Some(Self { current: current?, new: new? })
    }

    fn example() -> Value {
        json!({ "current": "four wet dogs run", "new": "five dry cats sit" })
    }
}

/// Body of `account/update`.
pub(crate) struct UpdateOwnAccount {
    pub(crate) change: AccountChange,
    pub(crate) password: Option<PasswordChange>,
}

impl Input for UpdateOwnAccount {
    const NAME: &'static str = "UpdateOwnAccount";

    fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let name = read_name(fields);
        let language = "The language of the console; null for that of the browser.";
        let language = fields.optional("language", language, Nullable(text(2, 20)));
        let password = fields.optional("password", "Another password.", nested());
        Some(Self { change: AccountChange { name, language, ..AccountChange::default() }, password })
    }

    fn example() -> Value {
        json!({ "name": "Anna", "language": "de" })
    }
}
