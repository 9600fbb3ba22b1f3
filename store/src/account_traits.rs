//! What other crates may call of the accounts of people.

use async_trait::async_trait;
use time::OffsetDateTime;

use crate::model::account::{
    Account, AccountChange, Credentials, Link, LinkUse, NewAccount, NewLink, NewSession, Session, TokenDigest,
};
use crate::model::ids::{AccountId, OrganizationId, SessionId};
use crate::traits::Result;

/// Accounts of people and their sessions. Times are compared with the caller's clock.
#[async_trait]
pub trait Accounts: Send + Sync {
    /// Makes an account with a link. For an account of the organization that has no password yet, another link takes the place of
    /// all before it. It stays disabled if it is. `Conflict` when the address has an account otherwise, also when that is an
    /// operator's and would be none any more.
    async fn invite(&self, account: NewAccount, link: NewLink) -> Result<Account>;
    /// Makes a link of an account; the one before for the same purpose ends.
    async fn make_link(&self, account: AccountId, link: NewLink) -> Result<()>;
    /// Returns the link of this digest, also when it has expired.
    async fn find_link(&self, digest: &TokenDigest) -> Result<Option<Link>>;
    /// Uses a link: it can be used once. A new password ends all sessions and links. `NotFound` when it was used or ended
    /// before.
    async fn use_link(&self, usage: LinkUse) -> Result<Account>;
    /// Returns what the password of an address is compared with.
    async fn find_credentials(&self, email: &str) -> Result<Option<Credentials>>;
    /// Returns the account of an address.
    async fn find(&self, email: &str) -> Result<Option<Account>> {
        Ok(self.find_credentials(email).await?.map(|credentials| credentials.account))
    }
    /// Records a wrong password for an address, whether it has an account or not; `at` is when. Returns until when no other
    /// is tried.
    async fn record_failure(&self, email: &str, at: OffsetDateTime) -> Result<OffsetDateTime>;
    /// Returns until when no password of an address is tried; a time in the past when one is.
    async fn blocked_until(&self, email: &str) -> Result<OffsetDateTime>;
    /// Records a wrong password from a place; returns how many there were in this hour.
    async fn count_failure(&self, source: &[u8; 32], hour: i64) -> Result<u64>;
    /// Returns how many wrong passwords came from a place in this hour.
    async fn failures_from(&self, source: &[u8; 32], hour: i64) -> Result<u64>;
    /// Begins a session after a password that was compared with this hash. Forgets wrong ones, and what has expired. `None`, and
    /// nothing changes, when the account has another password by now or is disabled.
    async fn begin_session(
        &self,
        account: AccountId,
        hash: &str,
        session: NewSession,
    ) -> Result<Option<Session>>;
    /// Returns the session of this digest with its account, also when it has expired.
    async fn find_session(&self, digest: &TokenDigest) -> Result<Option<(Session, Account)>>;
    /// Records that a session was used, at most once a minute.
    async fn touch_session(&self, session: SessionId, at: OffsetDateTime) -> Result<()>;
    /// Returns the sessions of an account, newest first.
    async fn list_sessions(&self, account: AccountId) -> Result<Vec<Session>>;
    /// Ends a session of the account. `NotFound` when it has none of this id.
    async fn end_session(&self, account: AccountId, session: SessionId) -> Result<()>;
    /// Returns the accounts of an organization, or of all of them, oldest first.
    async fn list(&self, organization: Option<OrganizationId>) -> Result<Vec<Account>>;
    /// Changes an account of the organization. Disabling ends its sessions and links. `Conflict` when no owner would be left
    /// who can sign in; `NotFound` when the organization has no such account.
    async fn update(
        &self,
        organization: OrganizationId,
        id: AccountId,
        change: AccountChange,
    ) -> Result<Account>;
    /// Sets another password, and ends all links and all sessions but one.
    async fn set_password(&self, account: AccountId, password: String, kept: SessionId) -> Result<()>;
}
