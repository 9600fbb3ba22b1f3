//! The pages of the console and of galleries and their files, with headers that keep out whatever is not ours.

use std::sync::Arc;

use fast_qr::convert::svg::SvgBuilder;
use fast_qr::{ECL, QRBuilder};
use photofinish_console::{File, Files};
use sha2::{Digest, Sha256};
use warp::filters::BoxedFilter;
use warp::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, ETAG, HeaderValue, IF_NONE_MATCH,
    LOCATION, VARY,
};
use warp::http::{HeaderMap, Method, StatusCode};
use warp::path::FullPath;
use warp::reply::Response;
use warp::{Filter, reject};

use crate::context::{ConsoleSettings, Context};
use crate::errors::ApiError;
use crate::handlers::galleries::QR_CODE_SUFFIX;
use crate::reply;
use crate::server::gallery::{GALLERY_PREFIX, is_link};
use crate::server::read_only::read_only;

/// The path under which the files of pages are.
const FILES_PREFIX: &str = "/assets/";
/// The path of the console.
const CONSOLE: &str = "/console";
/// What pages may use of a device.
const NO_CAMERA: &str = "camera=(), microphone=(), geolocation=()";
/// The same for galleries, which take selfies.
const CAMERA: &str = "camera=(self), microphone=(), geolocation=()";

/// A path that this module answers.
enum Page {
    /// A page of the console: the program in the browser reads the path.
    Console,
    /// The page of a gallery.
    Gallery,
    /// A QR code of the address of a gallery: its link.
    QrCode(String),
    /// A file of pages.
    File(String),
    /// The root of the host, which has nothing of its own.
    Root,
}

impl Page {
    fn from_path(path: &str) -> Option<Self> {
        if let Some(name) = path.strip_prefix(FILES_PREFIX) {
            return Some(Self::File(name.to_owned()));
        }
        if let Some(below) = path.strip_prefix(GALLERY_PREFIX) {
            let link = below.strip_suffix(QR_CODE_SUFFIX);
            if let Some(link) = link.filter(|link| is_link(link)) {
                return Some(Self::QrCode(link.to_owned()));
            }
            return (!below.contains("/api/")).then_some(Self::Gallery);
        }
        let below = path.strip_prefix(CONSOLE)?;
        let is_page = below.is_empty() || below.starts_with('/') && !below.starts_with("/api/");
        is_page.then_some(Self::Console)
    }
}

/// What the pages of a port are for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Audience {
    /// People with an account, and visitors of galleries.
    Everybody,
    /// People with an account alone.
    Accounts,
    /// Visitors of galleries alone.
    Visitors,
}

/// Returns the routes of pages.
pub(super) fn routes(ctx: &Context, audience: Audience) -> BoxedFilter<(Response,)> {
    let site = Arc::new(Site::new(&ctx.settings.console, audience));
    let own = Arc::clone(&site);
    let matched = warp::path::full()
        .and_then(|path: FullPath| {
            let page = if path.as_str() == "/" { Some(Page::Root) } else { Page::from_path(path.as_str()) };
            async move { page.ok_or_else(reject::not_found) }
        })
        // After the path: requests of other routes come by here too.
        .and(warp::header::headers_cloned())
        .and_then(move |page: Page, headers: HeaderMap| {
            let page = own.has(&page, &headers).then_some(page);
            async move { page.ok_or_else(reject::not_found) }
        });
    read_only(matched, move |page: Page, request| {
        let site = Arc::clone(&site);
        async move { site.respond(&page, &request.method, &request.headers) }
    })
}

/// The files, and what headers say of them.
struct Site {
    files: Files,
    settings: ConsoleSettings,
    audience: Audience,
}

impl Site {
    fn new(settings: &ConsoleSettings, audience: Audience) -> Self {
        let files = settings.folder.clone().map_or(Files::Embedded, Files::Folder);
        Self { files, settings: settings.clone(), audience }
    }

    /// Whether a page is on this port and host.
    fn has(&self, page: &Page, headers: &HeaderMap) -> bool {
        match page {
            // A fault in a public page then has no session beside it.
            Page::Console | Page::Root => {
                self.audience != Audience::Visitors && !self.settings.is_gallery_host(headers)
            }
            Page::Gallery => self.audience != Audience::Accounts,
            // It is drawn from its address alone, and the console shows it too.
            Page::QrCode(_) | Page::File(_) => true,
        }
    }

    fn respond(&self, page: &Page, method: &Method, headers: &HeaderMap) -> Response {
        let mut response = match page {
            Page::Console => self.page_response("console", NO_CAMERA, headers),
            Page::Gallery => self.page_response("gallery", CAMERA, headers),
            Page::QrCode(link) => self.qr_code_response(link),
            Page::Root => redirect(CONSOLE),
            Page::File(name) => {
                match self.files.get(name).filter(|file| !file.media_type.starts_with("text/html")) {
                    Some(file) => {
                        let mut response = file_response(file, headers);
                        // The name has a digest of the content, so that another content has another name.
                        let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
                        response.headers_mut().insert(CACHE_CONTROL, forever);
                        response
                    }
                    None => ApiError::not_found().into_response(),
                }
            }
        };
        if *method == Method::HEAD {
            let length = response.headers_mut().remove(CONTENT_LENGTH);
            let (parts, _) = response.into_parts();
            response = Response::from_parts(parts, bytes::Bytes::new().into());
            if let Some(length) = length {
                response.headers_mut().insert(CONTENT_LENGTH, length);
            }
        }
        response
    }

    /// Draws the address, whether or not there is such a gallery: who asks has the link.
    fn qr_code_response(&self, link: &str) -> Response {
        let base = self.settings.gallery_base();
        let address = format!("{}{GALLERY_PREFIX}{link}", base.as_str().trim_end_matches('/'));
        match QRBuilder::new(address).ecl(ECL::M).build() {
            Ok(code) => {
                let picture = SvgBuilder::default().to_str(&code);
                let mut response =
                    reply::body_response(HeaderValue::from_static("image/svg+xml"), picture.into());
                response
                    .headers_mut()
                    .insert(CACHE_CONTROL, HeaderValue::from_static("private, max-age=3600"));
                response
            }
            Err(_) => ApiError::not_found().into_response(),
        }
    }

    fn page_response(&self, name: &str, permissions: &'static str, headers: &HeaderMap) -> Response {
        let file = self.files.page(name);
        let tag = format!("\"{}\"", hex::encode(&Sha256::digest(&file.bytes)[..12]));
        let tag = HeaderValue::from_str(&tag).expect("hexadecimal digits are ASCII");
        let is_known = headers.get(IF_NONE_MATCH).is_some_and(|known| known == tag);
        let mut response = if is_known { not_modified() } else { file_response(file, headers) };
        let headers = response.headers_mut();
        headers.insert(ETAG, tag);
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert("content-security-policy", content_policy(&self.settings));
        headers.insert("referrer-policy", HeaderValue::from_static("no-referrer"));
        headers.insert("permissions-policy", HeaderValue::from_static(permissions));
        headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
        headers.insert("x-robots-tag", HeaderValue::from_static("noindex"));
        response
    }
}

/// Returns the policy of pages: nothing but their own files, the API of this host, and pictures of the storage. A console with a
/// URL of its own also shows what the public URL has: pictures of a local storage, QR codes.
fn content_policy(settings: &ConsoleSettings) -> HeaderValue {
    let public = settings.public_url.origin();
    let other = (public != settings.console_url.origin()).then(|| public.ascii_serialization());
    let origins = settings.storage_origin.get().into_iter().chain(other.as_deref());
    let storage: String = origins.map(|origin| format!(" {origin}")).collect();
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:{storage}; \
         connect-src 'self'{storage}; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    );
    HeaderValue::from_str(&policy).unwrap_or_else(|_| HeaderValue::from_static("default-src 'none'"))
}

fn file_response(file: File, headers: &HeaderMap) -> Response {
    let media_type = HeaderValue::from_static(file.media_type);
    let accepts = headers.get(ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let brotli = file.brotli.filter(|_| accepts_brotli(accepts));
    let is_brotli = brotli.is_some();
    let bytes = brotli.unwrap_or(file.bytes);
    let length = HeaderValue::from(bytes.len());
    let bytes = match bytes {
        std::borrow::Cow::Borrowed(bytes) => bytes::Bytes::from_static(bytes),
        std::borrow::Cow::Owned(bytes) => bytes.into(),
    };
    let mut response = reply::body_response(media_type, bytes);
    let headers = response.headers_mut();
    headers.insert(CONTENT_LENGTH, length);
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if is_brotli {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("br"));
    }
    response
}

fn accepts_brotli(header: &str) -> bool {
    header.split(',').any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        parts.next() == Some("br") && parts.all(|weight| weight != "q=0")
    })
}

fn not_modified() -> Response {
    let mut response = Response::new(bytes::Bytes::new().into());
    *response.status_mut() = StatusCode::NOT_MODIFIED;
    response
}

fn redirect(to: &'static str) -> Response {
    let mut response = Response::new(bytes::Bytes::new().into());
    *response.status_mut() = StatusCode::SEE_OTHER;
    response.headers_mut().insert(LOCATION, HeaderValue::from_static(to));
    response
}
#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;
    use crate::context::StorageOrigin;

    #[test]
    fn the_storage_is_permitted_as_soon_as_its_origin_is_known() {
        let url = Url::parse("https://photos.example").unwrap();
        let settings = ConsoleSettings {
            is_enabled: true,
            is_on_api_port: true,
            public_url: url.clone(),
            console_url: url,
            gallery_url: None,
            storage_origin: StorageOrigin::default(),
            proxies: 0,
            console_proxies: 0,
            folder: None,
            version: "1",
        };
        let bucket = "https://bucket.example";
        let policy = |settings: &ConsoleSettings| content_policy(settings).to_str().unwrap().to_owned();
        assert!(!policy(&settings).contains(bucket));
        settings.storage_origin.set(bucket.to_owned());
        assert!(
            policy(&settings).contains(&format!("img-src 'self' blob: {bucket};")),
            "{}",
            policy(&settings)
        );
    }
}
