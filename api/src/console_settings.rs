//! The settings of the console and of galleries.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use url::Url;
use warp::http::HeaderMap;
use warp::http::header::HOST;

/// The origin of the URLs under which browsers load and upload pictures, such as `https://bucket.example`. Empty until it is
/// known, which takes a URL that the storage has signed: pages show no pictures of another host until then.
#[derive(Clone, Debug, Default)]
pub struct StorageOrigin(Arc<OnceLock<String>>);

impl StorageOrigin {
    /// Sets it, once.
    pub fn set(&self, origin: String) {
        self.0.get_or_init(|| origin);
    }

    pub(crate) fn get(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}

/// The settings of the console and of galleries.
#[derive(Clone, Debug)]
pub struct ConsoleSettings {
    /// Whether there are any.
    pub is_enabled: bool,
    /// Whether the console is on the port of the API; else it has one of its own, see [`crate::serve_console`].
    pub is_on_api_port: bool,
    /// The URL under which people reach the service.
    pub public_url: Url,
    /// The URL under which people reach the console.
    pub console_url: Url,
    /// The URL under which visitors reach galleries, where it has another host: then the console is not there.
    pub gallery_url: Option<Url>,
    /// Where pictures are loaded from and uploaded to.
    pub storage_origin: StorageOrigin,
    /// How many proxies of ours are before the service and add to `x-forwarded-for`.
    pub proxies: usize,
    /// The same before the console, where it has an address of its own.
    pub console_proxies: usize,
    /// The folder that the pages are read from, in place of those in the program: for who works on them.
    pub folder: Option<PathBuf>,
    /// The version of the program.
    pub version: &'static str,
}

impl ConsoleSettings {
    /// Whether a request came to the host that galleries have for themselves.
    pub(crate) fn is_gallery_host(&self, headers: &HeaderMap) -> bool {
        let Some(url) = self.gallery_url.as_ref().filter(|url| url.origin() != self.public_url.origin())
        else {
            return false;
        };
        let port = url.port().map_or(String::new(), |port| format!(":{port}"));
        let host = format!("{}{port}", url.host_str().unwrap_or_default());
        headers.get(HOST).is_some_and(|asked| asked.as_bytes().eq_ignore_ascii_case(host.as_bytes()))
    }

    /// The URL by which visitors of galleries reach the service.
    pub(crate) fn gallery_base(&self) -> &Url {
        self.gallery_url.as_ref().unwrap_or(&self.public_url)
    }

    /// Whether browsers of visitors reach galleries by https.
    pub(crate) fn is_gallery_https(&self) -> bool {
        self.gallery_base().scheme() == "https"
    }

    /// Whether the browsers of people with an account reach the console by https.
    pub(crate) fn is_https(&self) -> bool {
        self.console_url.scheme() == "https"
    }
}
