//! The cookie of a session, and who is signed in with it.

use photofinish_store::model::account::{Account, NewSession, Role, Session, TokenDigest};
use photofinish_store::model::ids::{AccountId, SessionId};
use photofinish_store::traits::Accounts;
use time::{Duration, OffsetDateTime};
use warp::http::HeaderMap;
use warp::http::header::{COOKIE, HeaderValue, USER_AGENT};

use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::token::Token;

/// A session that is not used for this long ends.
const MAX_IDLE: Duration = Duration::hours(12);
/// How long a session lasts at most.
pub(crate) const LIFETIME: Duration = Duration::days(14);
/// The longest description of a browser that is kept, characters.
const MAX_DEVICE: usize = 200;

/// The name of the cookie. A browser accepts `__Host-` for this very host alone, over https, so that no other host of the
/// domain can set it.
const COOKIE_NAME: &str = "__Host-photofinish";
/// The name where the service is reached by plain http.
const PLAIN_COOKIE_NAME: &str = "photofinish";

/// Who is signed in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignedIn {
    /// The account.
    pub(crate) account: AccountId,
    /// The session.
    pub(crate) session: SessionId,
    /// What the account may do.
    pub(crate) role: Role,
    /// Whether it sees the health of the whole service.
    pub(crate) is_operator: bool,
    /// The digest of the cookie.
    pub(crate) digest: TokenDigest,
}

/// Returns the header that sets the cookie of a session.
pub(crate) fn set_cookie(token: &Token, is_https: bool) -> HeaderValue {
    let value = token.reveal();
    let max_age = LIFETIME.whole_seconds();
    header(&format!("{}={value}; Max-Age={max_age}", cookie_name(is_https)), is_https)
}

/// Returns the header that removes the cookie.
pub(crate) fn remove_cookie(is_https: bool) -> HeaderValue {
    header(&format!("{}=; Max-Age=0", cookie_name(is_https)), is_https)
}

fn header(cookie: &str, is_https: bool) -> HeaderValue {
    let secure = if is_https { "; Secure" } else { "" };
    let text = format!("{cookie}; Path=/; HttpOnly; SameSite=Lax{secure}");
    HeaderValue::from_str(&text).expect("names and tokens are ASCII")
}

fn cookie_name(is_https: bool) -> &'static str {
    if is_https { COOKIE_NAME } else { PLAIN_COOKIE_NAME }
}

/// Returns the value of a cookie.
pub(crate) fn find_cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let all = headers.get_all(COOKIE).into_iter().filter_map(|header| header.to_str().ok());
    let mut pairs = all.flat_map(|header| header.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(found, _)| *found == name).map(|(_, value)| value)
}

/// Returns the digest of the cookie of a session.
///
/// # Errors
/// 401 `SESSION_MISSING` without one.
pub(crate) fn read_digest(headers: &HeaderMap, is_https: bool) -> Result<TokenDigest, ApiError> {
    let token = find_cookie(headers, cookie_name(is_https)).and_then(Token::parse);
    token.map(|token| token.digest()).ok_or_else(|| unauthorized("SESSION_MISSING"))
}

/// Makes a session for the browser of a request.
pub(crate) fn new_session(token: &Token, headers: &HeaderMap) -> NewSession {
    let device = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    NewSession {
        digest: token.digest(),
        device: device.chars().take(MAX_DEVICE).collect(),
        expires_at: OffsetDateTime::now_utc() + LIFETIME,
    }
}

/// Returns the session of a digest with its account.
///
/// # Errors
/// 401 `SESSION_ENDED` if there is none, it has expired or the account is disabled.
pub(crate) async fn find(
    accounts: &dyn Accounts,
    digest: &TokenDigest,
    now: OffsetDateTime,
) -> Result<(Session, Account), ApiError> {
    let ended = || unauthorized("SESSION_ENDED");
    let (session, account) = accounts.find_session(digest).await?.ok_or_else(ended)?;
    let is_over = session.expires_at <= now || session.last_seen_at + MAX_IDLE <= now;
    if is_over || account.disabled_at.is_some() {
        return Err(ended());
    }
    Ok((session, account))
}

fn unauthorized(code: &'static str) -> ApiError {
    ApiError::new(ErrorKind::Unauthorized).with_code(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_bound_to_its_host_over_https() {
        let token = Token::generate();
        let set = set_cookie(&token, true);
        let text = set.to_str().unwrap();
        assert!(
            text.starts_with(&format!("__Host-photofinish={}; Max-Age=1209600; Path=/; ", token.reveal()))
        );
        assert!(text.ends_with("HttpOnly; SameSite=Lax; Secure"));
        assert!(!set_cookie(&token, false).to_str().unwrap().contains("Secure"));
        assert!(remove_cookie(false).to_str().unwrap().starts_with("photofinish=; Max-Age=0"));
    }

    #[test]
    fn a_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        let token = Token::generate();
        headers.append(COOKIE, HeaderValue::from_static("a=1; xphotofinish=2"));
        assert!(read_digest(&headers, false).is_err());
        let ours = format!("b=2; photofinish={}", token.reveal());
        headers.append(COOKIE, HeaderValue::from_str(&ours).unwrap());
        assert_eq!(read_digest(&headers, false).ok(), Some(token.digest()));
        assert!(read_digest(&headers, true).is_err(), "the other name");
    }
}
