//! Accounts of people in the database, the links that let them in, and their sessions.

#[cfg(any(test, feature = "conformance"))]
pub(crate) mod ageing;
mod failures;
mod rows;
mod sessions;

use async_trait::async_trait;
use time::OffsetDateTime;

use self::rows::{AccountRow, CredentialsRow, LinkRow, account_columns};
use crate::error::{StoreError, StoreErrorKind};
use crate::model::account::{
    Account, AccountChange, Credentials, Link, LinkUse, NewAccount, NewLink, NewSession, Role, Session,
    TokenDigest,
};
use crate::model::encoding::{now_micros, to_micros};
use crate::model::ids::{AccountId, OrganizationId, SessionId};
use crate::sql::database::{Database, Transaction};
use crate::sql::row_types::convert_rows;
use crate::sql::statement::query;
use crate::traits::{Accounts, Result};

const OPERATION: &str = "change an account";

pub(crate) struct SqlAccounts {
    database: Database,
}

impl SqlAccounts {
    pub(crate) fn new(database: Database) -> Self {
        Self { database }
    }
}

fn account_not_found() -> StoreError {
    StoreError::not_found("account")
}

/// Writes a link in place of the one before for the same purpose.
async fn write_link(transaction: &mut Transaction, account: AccountId, link: NewLink) -> Result<()> {
    let write = "insert into account_link (account, purpose, digest, expires_at) values ($1, $2, $3, $4) \
                 on conflict (account, purpose) do update set digest = excluded.digest, expires_at = excluded.expires_at";
    query(OPERATION, write)
        .bind(account)
        .bind(link.purpose.as_str())
        .bind(link.digest.to_vec())
        .bind(to_micros(link.expires_at))
        .execute(transaction)
        .await?;
    Ok(())
}

/// Ends the links of an account: each lets somebody in, or lets them choose a password.
async fn end_links(transaction: &mut Transaction, account: AccountId) -> Result<()> {
    query(OPERATION, "delete from account_link where account = $1")
        .bind(account)
        .execute(transaction)
        .await?;
    Ok(())
}

async fn find_account(transaction: &mut Transaction, id: AccountId) -> Result<Account> {
    let row: Option<AccountRow> =
        query(OPERATION, concat!("select ", account_columns!(), " where a.id = $1"))
            .bind(id)
            .fetch_optional(transaction)
            .await?;
    row.ok_or_else(account_not_found)?.try_into()
}

/// Locks the accounts of an organization, so that of two that leave it without an owner one sees the other.
async fn lock_accounts(transaction: &mut Transaction, organization: OrganizationId) -> Result<()> {
    query(OPERATION, "update organization set name = name where id = $1")
        .bind(organization)
        .execute(transaction)
        .await?;
    Ok(())
}

#[async_trait]
impl Accounts for SqlAccounts {
    async fn invite(&self, account: NewAccount, link: NewLink) -> Result<Account> {
        let mut transaction = self.database.begin_write(OPERATION).await?;
        // An account without a password is invited again, with what is asked now. But no invitation ends the rights of an
        // operator, whose account its link would open, and none enables an account.
        let write = "insert into account (id, organization, email, name, role, is_operator, created_at) \
                     values ($1, $2, $3, '', $4, $5, $6) on conflict (email) do update set role = excluded.role, \
                     is_operator = excluded.is_operator \
                     where account.password is null and account.organization = excluded.organization \
                     and account.is_operator <= excluded.is_operator";
        let written = query(OPERATION, write)
            .bind(AccountId::generate())
            .bind(account.organization)
            .bind(account.email.clone())
            .bind(account.role.as_str())
            .bind(i64::from(account.is_operator))
            .bind(now_micros())
            .execute(&mut transaction)
            .await?;
        if written == 0 {
            return Err(StoreError::new(StoreErrorKind::Conflict, "the address has an account"));
        }
        let (id,): (AccountId,) = query(OPERATION, "select id from account where email = $1")
            .bind(account.email)
            .fetch_one(&mut transaction)
            .await?;
        // Whoever has an earlier link may be no operator, as the account is from now on.
        end_links(&mut transaction, id).await?;
        write_link(&mut transaction, id, link).await?;
        let made = find_account(&mut transaction, id).await?;
        transaction.commit(OPERATION).await?;
        Ok(made)
    }

    async fn make_link(&self, account: AccountId, link: NewLink) -> Result<()> {
        let mut transaction = self.database.begin_write(OPERATION).await?;
        write_link(&mut transaction, account, link).await?;
        transaction.commit(OPERATION).await
    }

    async fn find_link(&self, digest: &TokenDigest) -> Result<Option<Link>> {
        const OPERATION: &str = "find a link of an account";
        let find = concat!(
            "select l.purpose, l.expires_at as link_expires_at, ",
            account_columns!(),
            " join account_link l on l.account = a.id where l.digest = $1 and a.disabled_at is null"
        );
        let row: Option<LinkRow> = query(OPERATION, find)
            .bind(digest.to_vec())
            .fetch_optional(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        row.map(Link::try_from).transpose()
    }

    async fn use_link(&self, usage: LinkUse) -> Result<Account> {
        let sets_password = usage.password.is_some();
        let mut transaction = self.database.begin_write(OPERATION).await?;
        // All links end with the password there was. In one statement, so that two that are used at once do not wait for each
        // other.
        let delete = "delete from account_link where (digest = $1 or $2 = 1) \
                      and account = (select account from account_link where digest = $1) returning account";
        let used: Vec<(AccountId,)> = query(OPERATION, delete)
            .bind(usage.digest.to_vec())
            .bind(i64::from(sets_password))
            .fetch_all(&mut transaction)
            .await?;
        let &(id,) = used.first().ok_or_else(|| StoreError::not_found("link of an account"))?;
        let update = "update account set password = coalesce($2, password), name = coalesce($3, name), last_seen_at = $4 \
                      where id = $1 and disabled_at is null";
        let updated = query(OPERATION, update)
            .bind(id)
            .bind(usage.password)
            .bind(usage.name)
            .bind(now_micros())
            .execute(&mut transaction)
            .await?;
        if updated == 0 {
            return Err(account_not_found());
        }
        if sets_password {
            sessions::end_all(&mut transaction, id, None).await?;
        }
        failures::forget(&mut transaction, id).await?;
        sessions::insert(&mut transaction, id, usage.session).await?;
        let account = find_account(&mut transaction, id).await?;
        transaction.commit(OPERATION).await?;
        Ok(account)
    }

    async fn find_credentials(&self, email: &str) -> Result<Option<Credentials>> {
        const OPERATION: &str = "find an account";
        let find = concat!("select a.password, ", account_columns!(), " where a.email = $1");
        let row: Option<CredentialsRow> = query(OPERATION, find)
            .bind(email)
            .fetch_optional(&mut self.database.acquire_reader(OPERATION).await?)
            .await?;
        row.map(Credentials::try_from).transpose()
    }

    async fn record_failure(&self, email: &str, at: OffsetDateTime) -> Result<OffsetDateTime> {
        failures::record(&self.database, email, at).await
    }

    async fn blocked_until(&self, email: &str) -> Result<OffsetDateTime> {
        failures::blocked_until(&self.database, email).await
    }

    async fn count_failure(&self, source: &[u8; 32], hour: i64) -> Result<u64> {
        failures::count_from_network(&self.database, source, hour).await
    }

    async fn failures_from(&self, source: &[u8; 32], hour: i64) -> Result<u64> {
        failures::count_of_network(&self.database, source, hour).await
    }

    async fn begin_session(
        &self,
        account: AccountId,
        hash: &str,
        session: NewSession,
    ) -> Result<Option<Session>> {
        sessions::begin(&self.database, account, hash, session).await
    }

    async fn find_session(&self, digest: &TokenDigest) -> Result<Option<(Session, Account)>> {
        sessions::find(&self.database, digest).await
    }

    async fn touch_session(&self, session: SessionId, at: OffsetDateTime) -> Result<()> {
        sessions::touch(&self.database, session, at).await
    }

    async fn list_sessions(&self, account: AccountId) -> Result<Vec<Session>> {
        sessions::list(&self.database, account).await
    }

    async fn end_session(&self, account: AccountId, session: SessionId) -> Result<()> {
        sessions::end(&self.database, account, session).await
    }

    async fn list(&self, organization: Option<OrganizationId>) -> Result<Vec<Account>> {
        const OPERATION: &str = "list accounts";
        let mut reader = self.database.acquire_reader(OPERATION).await?;
        let rows: Vec<AccountRow> = match organization {
            Some(organization) => {
                let list = concat!("select ", account_columns!(), " where a.organization = $1 order by a.id");
                query(OPERATION, list).bind(organization).fetch_all(&mut reader).await?
            }
            None => {
                let list = concat!("select ", account_columns!(), " order by a.id");
                query(OPERATION, list).fetch_all(&mut reader).await?
            }
        };
        convert_rows(rows)
    }

    async fn update(
        &self,
        organization: OrganizationId,
        id: AccountId,
        change: AccountChange,
    ) -> Result<Account> {
        let mut transaction = self.database.begin_write(OPERATION).await?;
        lock_accounts(&mut transaction, organization).await?;
        let owners = count_owners(&mut transaction, organization).await?;
        let update = "update account set name = coalesce($3, name), language = case when $4 = 1 then $5 else language end, \
                      role = coalesce($6, role), disabled_at = case when $7 = 1 then coalesce(disabled_at, $8) \
                      when $7 = 0 then null else disabled_at end where id = $1 and organization = $2";
        let updated = query(OPERATION, update)
            .bind(id)
            .bind(organization)
            .bind(change.name)
            .bind(i64::from(change.language.is_some()))
            .bind(change.language.flatten())
            .bind(change.role.map(|role| role.as_str().to_owned()))
            .bind(change.disabled.map(i64::from))
            .bind(now_micros())
            .execute(&mut transaction)
            .await?;
        if updated == 0 {
            return Err(account_not_found());
        }
        if change.disabled == Some(true) {
            sessions::end_all(&mut transaction, id, None).await?;
            end_links(&mut transaction, id).await?;
        }
        if change.disabled == Some(true) || change.role.is_some_and(|role| role != Role::Owner) {
            // One that never had an owner who can sign in, only by links, loses none.
            let left = count_owners(&mut transaction, organization).await?;
            if left == 0 && owners > 0 {
                return Err(StoreError::new(StoreErrorKind::Conflict, "the last owner of an organization"));
            }
        }
        let account = find_account(&mut transaction, id).await?;
        transaction.commit(OPERATION).await?;
        Ok(account)
    }

    async fn set_password(&self, account: AccountId, password: String, kept: SessionId) -> Result<()> {
        let mut transaction = self.database.begin_write(OPERATION).await?;
        // Links, the account and then its sessions: the order in which `use_link` locks them.
        end_links(&mut transaction, account).await?;
        let set = "update account set password = $2 where id = $1";
        query(OPERATION, set).bind(account).bind(password).execute(&mut transaction).await?;
        sessions::end_all(&mut transaction, account, Some(kept)).await?;
        failures::forget(&mut transaction, account).await?;
        transaction.commit(OPERATION).await
    }
}

/// Returns how many owners can sign in with a password.
async fn count_owners(transaction: &mut Transaction, organization: OrganizationId) -> Result<i64> {
    let count = "select count(*) from account where organization = $1 and role = 'owner' and disabled_at is null \
                 and password is not null";
    let (owners,): (i64,) = query(OPERATION, count).bind(organization).fetch_one(transaction).await?;
    Ok(owners)
}
