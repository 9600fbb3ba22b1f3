//! Rows of accounts, their links and their sessions.

use sqlx::FromRow;

use crate::error::StoreError;
use crate::model::account::{Account, Credentials, Link, LinkPurpose, Role, Session};
use crate::model::encoding::from_micros;
use crate::model::ids::{AccountId, OrganizationId, SessionId};
use crate::sql::row_types::parse_name;
use crate::traits::Result;

/// The columns of an [`AccountRow`], from the tables `a` and `o`.
macro_rules! account_columns {
    () => {
        "a.id, a.organization, o.name as organization_name, a.email, a.name, a.role, a.is_operator, a.language, \
         case when a.password is null then 0 else 1 end as has_password, a.created_at, a.last_seen_at, a.disabled_at \
         from account a join organization o on o.id = a.organization"
    };
}
pub(super) use account_columns;

#[derive(FromRow)]
pub(super) struct AccountRow {
    id: AccountId,
    organization: OrganizationId,
    organization_name: String,
    email: String,
    name: String,
    role: String,
    is_operator: i64,
    language: Option<String>,
    has_password: i32,
    created_at: i64,
    last_seen_at: Option<i64>,
    disabled_at: Option<i64>,
}

impl TryFrom<AccountRow> for Account {
    type Error = StoreError;
    fn try_from(row: AccountRow) -> Result<Self> {
        Ok(Self {
            id: row.id,
            organization: row.organization,
            organization_name: row.organization_name,
            email: row.email,
            name: row.name,
            role: parse_name(&Role::ALL, Role::as_str, &row.role)?,
            is_operator: row.is_operator != 0,
            language: row.language,
            has_password: row.has_password != 0,
            created_at: from_micros(row.created_at)?,
            last_seen_at: row.last_seen_at.map(from_micros).transpose()?,
            disabled_at: row.disabled_at.map(from_micros).transpose()?,
        })
    }
}

#[derive(FromRow)]
pub(super) struct CredentialsRow {
    password: Option<String>,
    #[sqlx(flatten)]
    account: AccountRow,
}

impl TryFrom<CredentialsRow> for Credentials {
    type Error = StoreError;
    fn try_from(row: CredentialsRow) -> Result<Self> {
        Ok(Self { account: row.account.try_into()?, password: row.password })
    }
}

#[derive(FromRow)]
pub(super) struct LinkRow {
    purpose: String,
    link_expires_at: i64,
    #[sqlx(flatten)]
    account: AccountRow,
}

impl TryFrom<LinkRow> for Link {
    type Error = StoreError;
    fn try_from(row: LinkRow) -> Result<Self> {
        Ok(Self {
            purpose: parse_name(&LinkPurpose::ALL, LinkPurpose::as_str, &row.purpose)?,
            expires_at: from_micros(row.link_expires_at)?,
            account: row.account.try_into()?,
        })
    }
}

#[derive(FromRow)]
pub(super) struct SessionRow {
    session_id: SessionId,
    device: String,
    session_created_at: i64,
    session_seen_at: i64,
    session_expires_at: i64,
}

impl TryFrom<SessionRow> for Session {
    type Error = StoreError;
    fn try_from(row: SessionRow) -> Result<Self> {
        Ok(Self {
            id: row.session_id,
            device: row.device,
            created_at: from_micros(row.session_created_at)?,
            last_seen_at: from_micros(row.session_seen_at)?,
            expires_at: from_micros(row.session_expires_at)?,
        })
    }
}

#[derive(FromRow)]
pub(super) struct SessionOfAccountRow {
    #[sqlx(flatten)]
    pub(super) session: SessionRow,
    #[sqlx(flatten)]
    pub(super) account: AccountRow,
}
