//! Signing in and out.

use std::time::Duration;

use photofinish_store::error::StoreErrorKind;
use photofinish_store::model::account::Credentials;
use time::OffsetDateTime;

use super::{check_not_blocked, describe_session};
use crate::auth::Member;
use crate::client_address::network_digest;
use crate::context::Context;
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::session;
use crate::token::Token;
use crate::visitor::{Answer, Visitor};
use crate::wire::Acknowledgement;
use crate::wire::console::Nothing;
use crate::wire::console::session::{CreateSession, EndSession, Session, SessionList};

/// Wrong passwords from one network in an hour before the others from there have to wait.
const MAX_FAILURES_FROM_NETWORK: u64 = 100;

pub(crate) async fn create(
    ctx: Context,
    visitor: Visitor,
    input: CreateSession,
) -> Result<Answer<Session>, ApiError> {
    // Who has to wait for longer takes nobody's turn.
    Attempt::new(&ctx, &visitor).check(&input.email).await?;
    let turn = ctx.passwords.take_turn().await?;
    // Again, and the turn lasts until a wrong one is counted: of many that are tried at once each is checked after others.
    let attempt = Attempt::new(&ctx, &visitor);
    attempt.check(&input.email).await?;
    let found = ctx.store.accounts.find_credentials(&input.email).await?;
    let hash = found.as_ref().and_then(|found| found.password.clone());
    let is_right = turn.verify(input.password, hash).await?;
    let (account, hash) = match found {
        Some(Credentials { account, password: Some(hash) }) if is_right && account.disabled_at.is_none() => {
            (account, hash)
        }
        _ => return Err(attempt.fail(&input.email).await),
    };
    let token = Token::generate();
    let session = session::new_session(&token, &visitor.headers);
    let begun = ctx.store.accounts.begin_session(account.id, &hash, session).await?;
    // There is none if the password was changed while this one was compared: what was right then is wrong now.
    let Some(begun) = begun else { return Err(attempt.fail(&input.email).await) };
    drop(turn);
    tracing::info!(account.id = %account.id, session.id = %begun.id, "signed in");
    let body = describe_session(&ctx, &begun, account);
    Ok(Answer::with_cookie(body, session::set_cookie(&token, ctx.settings.console.is_https())))
}

/// A password that somebody tries.
struct Attempt<'a> {
    ctx: &'a Context,
    now: OffsetDateTime,
    network: [u8; 32],
}

impl<'a> Attempt<'a> {
    /// One that is made now.
    fn new(ctx: &'a Context, visitor: &Visitor) -> Self {
        let now = OffsetDateTime::now_utc();
        Self { ctx, now, network: network_digest(&ctx.visitor_secret, visitor.address, now) }
    }

    fn hour(&self) -> i64 {
        self.now.unix_timestamp().div_euclid(3600)
    }

    /// Refuses what has to wait, for where it comes from or for its address.
    async fn check(&self, email: &str) -> Result<(), ApiError> {
        self.check_network().await?;
        check_not_blocked(self.ctx, email, self.now).await
    }

    /// Refuses a network from which too many wrong passwords came within this hour.
    async fn check_network(&self) -> Result<(), ApiError> {
        let failures = self.ctx.store.accounts.failures_from(&self.network, self.hour()).await?;
        if failures < MAX_FAILURES_FROM_NETWORK {
            return Ok(());
        }
        let rest = 3600 - self.now.unix_timestamp().rem_euclid(3600);
        Err(ApiError::rate_limited(Duration::from_secs(rest.unsigned_abs())))
    }

    /// Counts a wrong password. The answer is the same for an address without an account.
    async fn fail(&self, email: &str) -> ApiError {
        let accounts = &self.ctx.store.accounts;
        let counted = async {
            accounts.count_failure(&self.network, self.hour()).await?;
            accounts.record_failure(email, OffsetDateTime::now_utc()).await
        };
        match counted.await {
            Ok(_) => ApiError::new(ErrorKind::Unauthorized).with_code("WRONG_CREDENTIALS"),
            Err(error) => error.into(),
        }
    }
}

pub(crate) async fn get(ctx: Context, caller: Member, _: Nothing) -> Result<Session, ApiError> {
    let digest = &caller.signed_in.digest;
    let (session, account) = session::find(&*ctx.store.accounts, digest, OffsetDateTime::now_utc()).await?;
    Ok(describe_session(&ctx, &session, account))
}

/// Ends the session of the cookie, if there is one. May be repeated.
pub(crate) async fn delete(
    ctx: Context,
    visitor: Visitor,
    _: Nothing,
) -> Result<Answer<Acknowledgement>, ApiError> {
    let is_https = ctx.settings.console.is_https();
    if let Ok(digest) = session::read_digest(&visitor.headers, is_https)
        && let Some((session, account)) = ctx.store.accounts.find_session(&digest).await?
    {
        match ctx.store.accounts.end_session(account.id, session.id).await {
            Err(error) if error.kind != StoreErrorKind::NotFound => return Err(error.into()),
            _ => tracing::info!(account.id = %account.id, session.id = %session.id, "signed out"),
        }
    }
    Ok(Answer::with_cookie(Acknowledgement::new("Signed out"), session::remove_cookie(is_https)))
}

pub(crate) async fn list(ctx: Context, caller: Member, _: Nothing) -> Result<SessionList, ApiError> {
    let sessions = ctx.store.accounts.list_sessions(caller.signed_in.account).await?;
    Ok(SessionList::new(sessions, caller.signed_in.session))
}

pub(crate) async fn end(
    ctx: Context,
    caller: Member,
    input: EndSession,
) -> Result<Acknowledgement, ApiError> {
    ctx.store.accounts.end_session(caller.signed_in.account, input.session).await?;
    Ok(Acknowledgement::new("Session ended"))
}
