//! Links that let a person in: shown, and used once.

use photofinish_store::model::account::{Link, LinkPurpose, LinkUse};
use time::OffsetDateTime;

use super::{check_password, describe_session};
use crate::context::Context;
use crate::errors::ApiError;
use crate::session;
use crate::token::Token;
use crate::validate::issues::{Issue, PathSegment, code};
use crate::visitor::{Answer, Visitor};
use crate::wire::console::invitation::{AcceptInvitation, GetInvitation, Invitation};
use crate::wire::console::session::Session;

/// Returns the link of a token.
///
/// # Errors
/// 404 if there is none, if it was used, and if it has expired.
async fn find_link(ctx: &Context, token: &str) -> Result<(Token, Link), ApiError> {
    let token = Token::parse(token).ok_or_else(ApiError::not_found)?;
    let link = ctx.store.accounts.find_link(&token.digest()).await?;
    let link = link.filter(|link| link.expires_at > OffsetDateTime::now_utc());
    Ok((token, link.ok_or_else(ApiError::not_found)?))
}

pub(crate) async fn get(
    ctx: Context,
    _: Visitor,
    input: GetInvitation,
) -> Result<Answer<Invitation>, ApiError> {
    let (_, link) = find_link(&ctx, &input.token).await?;
    Ok(Invitation::from(link).into())
}

pub(crate) async fn accept(
    ctx: Context,
    visitor: Visitor,
    input: AcceptInvitation,
) -> Result<Answer<Session>, ApiError> {
    let (token, link) = find_link(&ctx, &input.token).await?;
    let path = || vec![PathSegment::Field("password")];
    let password = match (link.purpose, input.password) {
        // It needs none, and must not change the one there is.
        (LinkPurpose::Enter, _) => None,
        (LinkPurpose::Welcome | LinkPurpose::Reset, Some(password)) => {
            check_password(&password, &link.account.email, path())?;
            Some(ctx.passwords.hash(password).await?)
        }
        (LinkPurpose::Welcome | LinkPurpose::Reset, None) => {
            let message = "is required".to_owned();
            return Err(ApiError::invalid(&[Issue { path: path(), code: code::REQUIRED, message }]));
        }
    };
    let cookie = Token::generate();
    let usage = LinkUse {
        digest: token.digest(),
        password,
        name: input.name,
        session: session::new_session(&cookie, &visitor.headers),
    };
    let account = ctx.store.accounts.use_link(usage).await?;
    let now = OffsetDateTime::now_utc();
    let (session, account) = session::find(&*ctx.store.accounts, &cookie.digest(), now)
        .await
        .map(|(begun, _)| (begun, account))?;
    tracing::info!(account.id = %account.id, purpose = link.purpose.as_str(), "link of an account used");
    let body = describe_session(&ctx, &session, account);
    Ok(Answer::with_cookie(body, session::set_cookie(&cookie, ctx.settings.console.is_https())))
}
