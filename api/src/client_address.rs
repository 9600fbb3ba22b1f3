//! The address of a client, behind proxies too, and its digest for counting.

use std::net::IpAddr;

use photofinish_store::VisitorSecret;
use time::OffsetDateTime;
use warp::http::HeaderMap;

/// The address at the other end of the connection; an extension of the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddress(pub(crate) IpAddr);

/// Returns the address of a client behind so many proxies of ours. Each appends the address it was called from to
/// `x-forwarded-for`, so that only the last entries are to be believed.
pub(crate) fn client_address(peer: IpAddr, headers: &HeaderMap, proxies: usize) -> IpAddr {
    if proxies == 0 {
        return peer;
    }
    let headers = headers.get_all("x-forwarded-for").into_iter().filter_map(|value| value.to_str().ok());
    let entries: Vec<&str> = headers.flat_map(|header| header.split(',')).map(str::trim).collect();
    let entry = entries.len().checked_sub(proxies).and_then(|index| entries.get(index));
    entry.and_then(|entry| entry.parse().ok()).unwrap_or(peer)
}

/// Returns what is counted in place of a client's network (/24 in IPv4, /48 in IPv6), for a day: an HMAC that tells nobody the
/// address, and that changes with the day.
pub(crate) fn network_digest(secret: &VisitorSecret, address: IpAddr, now: OffsetDateTime) -> [u8; 32] {
    let mut message = match address.to_canonical() {
        IpAddr::V4(address) => address.octets()[..3].to_vec(),
        IpAddr::V6(address) => address.octets()[..6].to_vec(),
    };
    message.extend(now.date().to_julian_day().to_be_bytes());
    secret.digest(&message)
}

#[cfg(test)]
mod tests {
    use warp::http::header::HeaderValue;

    use super::*;

    #[test]
    fn only_what_our_own_proxies_wrote_is_believed() {
        let peer: IpAddr = "10.0.0.1".parse().unwrap();
        let of = |forwarded: &'static str, proxies| {
            let mut headers = HeaderMap::new();
            headers.insert("x-forwarded-for", HeaderValue::from_static(forwarded));
            client_address(peer, &headers, proxies).to_string()
        };
        assert_eq!(of("1.1.1.1, 2.2.2.2", 0), "10.0.0.1");
        assert_eq!(of("1.1.1.1, 2.2.2.2", 1), "2.2.2.2");
        assert_eq!(of("1.1.1.1, 2.2.2.2", 2), "1.1.1.1");
        assert_eq!(of("1.1.1.1, 2.2.2.2", 3), "10.0.0.1");
        assert_eq!(of("unknown", 1), "10.0.0.1");
        assert_eq!(of("2001:db8::1", 1), "2001:db8::1");
    }

    #[test]
    fn neighbours_are_counted_together_and_a_day_apart() {
        let secret = VisitorSecret::random();
        let digest = |address: &str, time| network_digest(&secret, address.parse().unwrap(), time);
        let (today, tomorrow) =
            (OffsetDateTime::UNIX_EPOCH, OffsetDateTime::UNIX_EPOCH + time::Duration::DAY);
        assert_eq!(digest("192.0.2.1", today), digest("192.0.2.200", today));
        assert_eq!(digest("::ffff:192.0.2.1", today), digest("192.0.2.1", today));
        assert_ne!(digest("192.0.2.1", today), digest("192.0.3.1", today));
        assert_ne!(digest("192.0.2.1", today), digest("192.0.2.1", tomorrow));
        assert_eq!(digest("2001:db8:1:2::1", today), digest("2001:db8:1:9::1", today));
    }
}
