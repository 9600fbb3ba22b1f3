//! The HTTP clients of webhooks: one that connects to public addresses alone, and one for the exceptions that an operator has
//! named. Neither follows redirects nor uses a proxy.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use rustls::crypto::CryptoProvider;
use tokio::time::timeout;
use url::{Host, Url};

use super::addresses::AddressRules;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a name may take to resolve while a webhook is created; one that does not resolve yet is taken.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a connection waits for the next delivery.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Finds the addresses of a name. The port is ignored.
#[async_trait]
pub trait Lookup: Send + Sync {
    async fn lookup(&self, name: &str) -> std::io::Result<Vec<SocketAddr>>;
}

/// The resolver of the operating system.
pub struct SystemLookup;

#[async_trait]
impl Lookup for SystemLookup {
    async fn lookup(&self, name: &str) -> std::io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((name, 0)).await?.collect())
    }
}

/// Clients and the rules by which one is chosen.
pub struct WebhookClients {
    rules: Arc<AddressRules>,
    lookup: Arc<dyn Lookup>,
    guarded: reqwest::Client,
    exceptional: reqwest::Client,
}

/// A name that has an address which is not allowed. It does not say which: whoever makes webhooks would learn the addresses of names
/// inside the network.
#[derive(Debug, thiserror::Error)]
#[error("the name has an address that is not public")]
struct RefusedAddress;

impl RefusedAddress {
    /// Tells the operator alone which address it is.
    fn log(name: &str, address: IpAddr) -> Self {
        tracing::info!(host = name, %address, "refused the name of a webhook, it has an address that is not public");
        Self
    }
}

/// Answers the addresses that were judged, and connects to no other.
struct GuardedResolver {
    rules: Arc<AddressRules>,
    lookup: Arc<dyn Lookup>,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (rules, lookup) = (Arc::clone(&self.rules), Arc::clone(&self.lookup));
        Box::pin(async move {
            let addresses = lookup.lookup(name.as_str()).await?;
            let refused = |address| RefusedAddress::log(name.as_str(), address);
            rules.check_addresses(&addresses).map_err(refused)?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

impl WebhookClients {
    /// Builds the clients.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn new(rules: AddressRules, lookup: Arc<dyn Lookup>) -> Result<Self, reqwest::Error> {
        if CryptoProvider::get_default().is_none() {
            // Fails when another thread has just installed one.
            drop(rustls::crypto::ring::default_provider().install_default());
        }
        let rules = Arc::new(rules);
        let builder = || {
            reqwest::Client::builder()
                .redirect(Policy::none())
                .no_proxy()
                .connect_timeout(CONNECT_TIMEOUT)
                .pool_idle_timeout(IDLE_TIMEOUT)
                .user_agent(concat!("photofinish/", env!("CARGO_PKG_VERSION")))
        };
        let resolver = GuardedResolver { rules: Arc::clone(&rules), lookup: Arc::clone(&lookup) };
        let guarded = builder().dns_resolver(Arc::new(resolver)).build()?;
        Ok(Self { rules, lookup, guarded, exceptional: builder().build()? })
    }

    /// Returns the client for a URL. Judges an address in it: no resolver is asked for that.
    ///
    /// # Errors
    /// What is wrong with the URL, for people.
    pub fn choose(&self, url: &Url) -> Result<&reqwest::Client, String> {
        self.rules.check_url(url)?;
        Ok(if self.rules.is_allowed_host(url) { &self.exceptional } else { &self.guarded })
    }

    /// Judges the URL of a webhook, and the addresses that its name has now.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub async fn check_url(&self, url: &str) -> Result<(), String> {
        let url = Url::parse(url).map_err(|error| error.to_string())?;
        self.choose(&url)?;
        let Some(Host::Domain(name)) = url.host().filter(|_| !self.rules.is_allowed_host(&url)) else {
            return Ok(());
        };
        match timeout(LOOKUP_TIMEOUT, self.lookup.lookup(name)).await {
            Ok(Ok(addresses)) => {
                let refused = |address| RefusedAddress::log(name, address).to_string();
                self.rules.check_addresses(&addresses).map_err(refused)
            }
            // Its owner may still have to set it up. It is judged whenever it is connected to.
            Ok(Err(_)) | Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Answers a list of addresses in turn, the last one again and again.
    struct ChangingLookup(Mutex<Vec<IpAddr>>);

    #[async_trait]
    impl Lookup for ChangingLookup {
        async fn lookup(&self, _: &str) -> std::io::Result<Vec<SocketAddr>> {
            let mut left = self.0.lock().unwrap();
            let address = if left.len() > 1 { left.remove(0) } else { left[0] };
            Ok(vec![SocketAddr::new(address, 0)])
        }
    }

    #[tokio::test]
    async fn a_name_that_changes_to_a_private_address_is_not_connected_to() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        let addresses = vec!["8.8.8.8".parse().unwrap(), "127.0.0.1".parse().unwrap()];
        let rules = AddressRules { allows_http: true, ..AddressRules::default() };
        let clients = WebhookClients::new(rules, Arc::new(ChangingLookup(Mutex::new(addresses)))).unwrap();
        let url = format!("http://rebinding.example:{port}/hook");
        // The name is public when the webhook is created.
        clients.check_url(&url).await.unwrap();
        let parsed = Url::parse(&url).unwrap();
        for _ in 0..3 {
            let refused = clients.choose(&parsed).unwrap().post(parsed.clone()).send().await.unwrap_err();
            let mut cause: &dyn Error = &refused;
            while let Some(next) = cause.source() {
                cause = next;
            }
            assert_eq!(cause.to_string(), "the name has an address that is not public");
        }
        assert_eq!(clients.check_url(&url).await.unwrap_err(), "the name has an address that is not public");
        assert_eq!(connections.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn a_name_without_an_address_is_taken_and_an_exception_is_not_looked_up() {
        struct NoLookup;
        #[async_trait]
        impl Lookup for NoLookup {
            async fn lookup(&self, name: &str) -> std::io::Result<Vec<SocketAddr>> {
                assert_ne!(name, "receiver.internal");
                Err(std::io::Error::other("no such name"))
            }
        }
        let allowed = super::super::addresses::AllowedTarget::parse("receiver.internal:9000").unwrap();
        let rules = AddressRules { allowed: vec![allowed], allows_http: false };
        let clients = WebhookClients::new(rules, Arc::new(NoLookup)).unwrap();
        clients.check_url("https://new.example/hook").await.unwrap();
        clients.check_url("https://receiver.internal:9000/hook").await.unwrap();
    }
}
