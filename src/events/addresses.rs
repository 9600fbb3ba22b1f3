//! Which addresses webhooks may have: public ones. A partner chooses the URL, and this service is inside a network whose
//! other services trust whoever reaches them.
//!
//! A name is judged by the resolver of the HTTP client itself: what was judged is what is connected to, so that a name that
//! is given another address in between (DNS rebinding) is judged again. An address in the URL bypasses every resolver, so it
//! is judged before.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use url::{Host, Url};

/// An exception of `PHOTOFINISH_WEBHOOK_ALLOW`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedTarget {
    /// The addresses of a network.
    Network { address: IpAddr, prefix: u8 },
    /// A host as URLs name it, with its port: at any address.
    Host { host: String, port: u16 },
}

/// The rules of an installation.
#[derive(Clone, Debug, Default)]
pub struct AddressRules {
    /// What is allowed beside public addresses.
    pub allowed: Vec<AllowedTarget>,
    /// Whether `http` is allowed beside `https`.
    pub allows_http: bool,
}

impl AllowedTarget {
    /// Parses a network (`10.1.0.0/16`, `fd00::/8`), or a host and port (`receiver.internal:8443`).
    pub fn parse(text: &str) -> Option<Self> {
        if let Some((address, prefix)) = text.split_once('/') {
            let address: IpAddr = address.parse().ok()?;
            let prefix: u8 = prefix.parse().ok()?;
            let max = if address.is_ipv4() { 32 } else { 128 };
            return (prefix <= max).then_some(Self::Network { address, prefix });
        }
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok().filter(|port| *port > 0)?;
        // As a URL spells it: lower case, punycode, the usual form of an address.
        let host = Host::parse(host).ok()?.to_string();
        Some(Self::Host { host, port })
    }
}

impl AddressRules {
    /// Judges the parts of a URL, and its address if it has one in place of a name.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn check_url(&self, url: &Url) -> Result<(), String> {
        let is_web = url.scheme() == "https" || (url.scheme() == "http" && self.allows_http);
        if !is_web {
            return Err("must begin with https://".to_owned());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("must not contain a user name or a password".to_owned());
        }
        if url.fragment().is_some() {
            return Err("must not contain a fragment".to_owned());
        }
        let is_plain = url.scheme() == "http";
        match url.port_or_known_default() {
            Some(443 | 1024..) => {}
            Some(80) if is_plain => {}
            _ => return Err("must have the port 443 or one from 1024".to_owned()),
        }
        if self.is_allowed_host(url) {
            return Ok(());
        }
        let address = match url.host() {
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            Some(Host::Domain(_)) => return Ok(()),
            None => return Err("must have a host".to_owned()),
        };
        if self.allows(address) { Ok(()) } else { Err(format!("{address} is not a public address")) }
    }

    /// Whether the host and port of a URL are an exception: then its name may have any address.
    pub fn is_allowed_host(&self, url: &Url) -> bool {
        let port = url.port_or_known_default();
        self.allowed.iter().any(|allowed| match allowed {
            AllowedTarget::Host { host, port: allowed } => {
                url.host_str() == Some(host.as_str()) && port == Some(*allowed)
            }
            AllowedTarget::Network { .. } => false,
        })
    }

    /// Judges all addresses of a name.
    ///
    /// # Errors
    /// The first that is not allowed: one bad address among several refuses the name.
    pub fn check_addresses(&self, addresses: &[SocketAddr]) -> Result<(), IpAddr> {
        match addresses.iter().find(|address| !self.allows(address.ip())) {
            Some(address) => Err(address.ip()),
            None => Ok(()),
        }
    }

    fn allows(&self, address: IpAddr) -> bool {
        let is_in_network = |allowed: &AllowedTarget| match allowed {
            AllowedTarget::Network { address: network, prefix } => contains(*network, *prefix, address),
            AllowedTarget::Host { .. } => false,
        };
        is_public(address) || self.allowed.iter().any(is_in_network)
    }
}

fn contains(network: IpAddr, prefix: u8, address: IpAddr) -> bool {
    match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            shares_prefix(network.to_bits().into(), address.to_bits().into(), prefix, 32)
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => {
            shares_prefix(network.to_bits(), address.to_bits(), prefix, 128)
        }
        _ => false,
    }
}

/// Whether the first `prefix` of `width` bits are equal.
fn shares_prefix(one: u128, other: u128, prefix: u8, width: u8) -> bool {
    // A shift by all 128 bits is none.
    (one ^ other).checked_shr(u32::from(width - prefix)).unwrap_or(0) == 0
}

/// Whether an address is one of the internet at large, by the registries of special-purpose addresses of IANA (RFC 6890).
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Networks that are not public: the host itself, private and shared ones, loopback, link-local, for protocols, for
/// documentation, for 6to4 relays and benchmarks, multicast and reserved.
const SPECIAL_V4: [(Ipv4Addr, u8); 14] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];

fn is_public_v4(address: Ipv4Addr) -> bool {
    !SPECIAL_V4.iter().any(|(network, prefix)| contains((*network).into(), *prefix, address.into()))
}

/// Only global unicast addresses (2000::/3), and those of IPv4 hosts, which are judged as such.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let bits = address.to_bits();
    let is_in = |network: Ipv6Addr, prefix| contains(network.into(), prefix, address.into());
    let lowest = Ipv4Addr::from_bits(bits as u32);
    // Mapped addresses and those of the well-known NAT64 prefix have theirs in the last 32 bits.
    if is_in(Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96)
        || is_in(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96)
    {
        return is_public_v4(lowest);
    }
    // 6to4 has it after its own 16 bits.
    if is_in(Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16) {
        return is_public_v4(Ipv4Addr::from_bits((bits >> 80) as u32));
    }
    // Teredo has it inverted in the last 32 bits.
    if is_in(Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32) {
        return is_public_v4(Ipv4Addr::from_bits(!(bits as u32)));
    }
    let is_documentation = is_in(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32)
        || is_in(Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20);
    is_in(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3) && !is_documentation
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rules: &AddressRules, url: &str) -> Result<(), String> {
        rules.check_url(&Url::parse(url).unwrap_or_else(|error| panic!("{url}: {error}")))
    }

    /// Hosts as URLs spell them, encoded and mapped ones too, that are no public address.
    const REFUSED: [&str; 50] = [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.127.255.254",
        "127.0.0.1",
        "127.1.2.3",
        "0x7f.1",
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "127.1",
        "169.254.169.254",
        "169.254.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.8",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.0.1",
        "192.168.255.255",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "[::]",
        "[::1]",
        "[::7f00:1]",
        "[fc00::1]",
        "[fd12:3456::1]",
        "[fe80::1]",
        "[febf::1]",
        "[ff02::1]",
        "[2001:db8::1]",
        "[3fff:fff::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::ffff:10.1.2.3]",
        "[::ffff:169.254.169.254]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b::a00:1]",
        "[64:ff9b:1::1]",
        "[2002:7f00:1::1]",
        "[2002:c0a8:1::1]",
        "[2001:0:5ef5:79fd:0:59d:f5ff:fffe]",
    ];

    const PUBLIC: [&str; 16] = [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.1",
        "100.63.255.255",
        "100.128.0.1",
        "126.255.255.255",
        "128.0.0.1",
        "172.15.255.255",
        "172.32.0.1",
        "192.0.1.1",
        "223.255.255.255",
        "[2606:4700::1111]",
        "[2a00:1450:4001::5e]",
        "[::ffff:8.8.8.8]",
        "[64:ff9b::808:808]",
    ];

    #[test]
    fn only_public_addresses_are_taken_however_they_are_spelled() {
        let rules = AddressRules::default();
        for host in REFUSED {
            assert!(check(&rules, &format!("https://{host}/hook")).is_err(), "{host} is taken");
        }
        for host in PUBLIC {
            check(&rules, &format!("https://{host}/hook")).unwrap_or_else(|refused| panic!("{refused}"));
        }
    }

    #[test]
    fn one_bad_address_among_several_refuses_a_name() {
        let address = |ip: &str| SocketAddr::new(ip.parse().unwrap(), 443);
        let rules = AddressRules::default();
        rules.check_addresses(&[address("8.8.8.8"), address("2606:4700::1111")]).unwrap();
        let mixed = [address("8.8.8.8"), address("10.0.0.7"), address("1.1.1.1")];
        assert_eq!(rules.check_addresses(&mixed), Err("10.0.0.7".parse().unwrap()));
    }

    #[test]
    fn a_url_has_https_an_unprivileged_port_and_nothing_secret() {
        let rules = AddressRules::default();
        for url in ["https://a.example", "https://a.example:443/x?y=z", "https://a.example:8443/"] {
            check(&rules, url).unwrap();
        }
        for url in [
            "http://a.example/",
            "ftp://a.example/",
            "https://user@a.example/",
            "https://user:secret@a.example/",
            "https://a.example/#part",
            "https://a.example:22/",
            "https://a.example:80/",
        ] {
            assert!(check(&rules, url).is_err(), "{url}");
        }
        let with_http = AddressRules { allows_http: true, ..AddressRules::default() };
        check(&with_http, "http://a.example/").unwrap();
        assert!(check(&with_http, "http://127.0.0.1/").is_err());
        assert!(check(&with_http, "https://a.example:80/").is_err());
    }

    #[test]
    fn exceptions_are_exact() {
        let allowed = ["10.1.0.0/16", "fd00::/8", "127.0.0.1:8443", "receiver.internal:9000"]
            .map(|text| AllowedTarget::parse(text).unwrap());
        let rules = AddressRules { allowed: allowed.to_vec(), ..AddressRules::default() };
        for url in ["https://10.1.255.1/", "https://[fd12::1]/", "https://127.0.0.1:8443/"] {
            check(&rules, url).unwrap();
        }
        for url in
            ["https://10.2.0.1/", "https://[fc00::1]/", "https://127.0.0.1/", "https://127.0.0.2:8443/"]
        {
            assert!(check(&rules, url).is_err(), "{url}");
        }
        let is_allowed = |url| rules.is_allowed_host(&Url::parse(url).unwrap());
        assert!(
            is_allowed("https://receiver.internal:9000/") && is_allowed("https://RECEIVER.internal:9000/a")
        );
        assert!(!is_allowed("https://receiver.internal/") && !is_allowed("https://other.internal:9000/"));
        for wrong in ["10.0.0.0/33", "10.0.0.0", "host", "host:0", "host:port", ":80", "fd00::/129"] {
            assert_eq!(AllowedTarget::parse(wrong), None, "{wrong}");
        }
    }
}
