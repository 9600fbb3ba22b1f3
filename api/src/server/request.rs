//! Takes from warp what operations need of a request.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use warp::http::HeaderMap;
use warp::{Filter, Rejection};

use crate::auth::Gate;
use crate::client_address::PeerAddress;
use crate::operation::ApiRequest;
use crate::operation::body::RequestBody;
use crate::seats::Activity;

/// Extracts method, headers and the unread body.
pub(super) fn extract_request() -> impl Filter<Extract = (ApiRequest,), Error = Rejection> + Clone {
    let parts = warp::method().and(warp::header::headers_cloned()).and(warp::ext::optional());
    let of_connection = warp::ext::optional::<Arc<Activity>>().and(warp::body::stream());
    parts.and(of_connection).map(|method, headers: HeaderMap, peer: Option<PeerAddress>, activity, chunks| {
        let body = RequestBody::new(&headers, activity, chunks);
        let address = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |PeerAddress(address)| address);
        ApiRequest { gate: Gate::Key, link: None, address, method, headers, body, rate: None }
    })
}
