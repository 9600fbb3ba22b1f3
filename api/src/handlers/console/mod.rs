//! The operations of the console alone.

pub(crate) mod accounts;
pub(crate) mod invitations;
pub(crate) mod keys;
pub(crate) mod operator;
pub(crate) mod pipeline;
pub(crate) mod sessions;

use photofinish_store::model::account::{Account, LinkPurpose, NewLink, Session};
use time::{Duration, OffsetDateTime};
use url::Url;

use crate::context::Context;
use crate::errors::ApiError;
use crate::password::{self, PasswordProblem};
use crate::token::Token;
use crate::validate::issues::{Issue, PathSegment, code};
use crate::wire::console::session::{Organization, Session as SessionBody, SessionTimes};

/// How long a link lets a person in who is to choose a password.
const LINK_TTL: Duration = Duration::hours(72);

/// Makes a link, and the URL under which it is used.
fn make_link(ctx: &Context, purpose: LinkPurpose) -> (NewLink, String) {
    let token = Token::generate();
    let link = NewLink { purpose, digest: token.digest(), expires_at: OffsetDateTime::now_utc() + LINK_TTL };
    (link, welcome_url(&ctx.settings.console.console_url, &token))
}

/// Returns the URL under which a link is used.
pub fn welcome_url(public_url: &Url, token: &Token) -> String {
    let base = public_url.as_str().trim_end_matches('/');
    format!("{base}/console/welcome/{}", token.reveal())
}

/// Returns what the console has to know of a session.
fn describe_session(ctx: &Context, session: &Session, account: Account) -> SessionBody {
    let settings = &ctx.settings;
    SessionBody {
        organization: Organization { id: account.organization.0, name: account.organization_name.clone() },
        account: account.into(),
        session: SessionTimes {
            id: session.id.0,
            created_at: session.created_at,
            expires_at: session.expires_at,
        },
        environment: settings.environment.as_str().to_owned(),
        modes: settings.environment.modes().iter().map(|mode| mode.as_str().to_owned()).collect(),
        version: settings.console.version.to_owned(),
        media_types: settings.media_types.clone(),
        max_photo_bytes: settings.max_photo_bytes,
    }
}

/// Refuses to try a password of an address after too many wrong ones, whether it has an account or not.
///
/// # Errors
/// 429 until another is tried.
async fn check_not_blocked(ctx: &Context, email: &str, now: OffsetDateTime) -> Result<(), ApiError> {
    match std::time::Duration::try_from(ctx.store.accounts.blocked_until(email).await? - now) {
        Ok(wait) if !wait.is_zero() => Err(ApiError::rate_limited(wait)),
        _ => Ok(()),
    }
}

/// Checks a new password.
///
/// # Errors
/// 400 with what is wrong with it.
fn check_password(password: &str, email: &str, path: Vec<PathSegment>) -> Result<(), ApiError> {
    let (code, message) = match password::check_strength(password, email) {
        Ok(()) => return Ok(()),
        Err(PasswordProblem::TooShort) => {
            (code::TOO_SMALL, format!("must have at least {} characters", password::MIN_PASSWORD))
        }
        Err(PasswordProblem::TooLong) => {
            (code::TOO_BIG, format!("must have at most {} characters", password::MAX_PASSWORD))
        }
        Err(PasswordProblem::TooCommon) => {
            (code::TOO_COMMON, "is among the passwords that are guessed first".to_owned())
        }
        Err(PasswordProblem::IsAddress) => {
            (code::IS_ADDRESS, "must not be the address of the account".to_owned())
        }
    };
    Err(ApiError::invalid(&[Issue { path, code, message }]))
}
