//! Who calls an operation that needs neither key nor session, and what it answers.

use std::net::IpAddr;

use warp::http::HeaderMap;
use warp::http::header::HeaderValue;

/// Who sends a request without key and session.
pub(crate) struct Visitor {
    /// The headers of the request.
    pub(crate) headers: HeaderMap,
    /// Where it comes from.
    pub(crate) address: IpAddr,
    /// The secret part of the address of the gallery in which it is.
    pub(crate) link: Option<String>,
}

/// The body of a response, and the cookies that it sets.
pub(crate) struct Answer<O> {
    pub(crate) body: O,
    pub(crate) cookies: Vec<HeaderValue>,
}

impl<O> Answer<O> {
    /// An answer that sets a cookie.
    pub(crate) fn with_cookie(body: O, cookie: HeaderValue) -> Self {
        Self { body, cookies: vec![cookie] }
    }
}

impl<O> From<O> for Answer<O> {
    fn from(body: O) -> Self {
        Self { body, cookies: Vec::new() }
    }
}
