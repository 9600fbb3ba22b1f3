//! Takes from warp what operations need of a request.

use std::net::{IpAddr, Ipv4Addr};

use warp::http::HeaderMap;
use warp::{Filter, Rejection};

use crate::auth::Gate;
use crate::client_address::PeerAddress;
use crate::operation::ApiRequest;
use crate::operation::body::RequestBody;

/// Extracts method, headers and the unread body.
pub(super) fn extract_request() -> impl Filter<Extract = (ApiRequest,), Error = Rejection> + Clone {
    let parts = warp::method().and(warp::header::headers_cloned()).and(warp::ext::optional());
    parts.and(warp::body::stream()).map(|method, headers: HeaderMap, peer: Option<PeerAddress>, chunks| {
        let body = RequestBody::new(&headers, chunks);
        let address = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |PeerAddress(address)| address);
        ApiRequest { gate: Gate::Key, link: None, address, method, headers, body, rate: None }
    })
}
