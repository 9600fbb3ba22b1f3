//! Presigned URLs as partners and browsers use them, verified by the server.

use std::time::{Duration, Instant};

use bytes::Bytes;
use photofinish_servers::{Proxy, S3Server};
use photofinish_store::blobs::cloud::{CloudObjects, CloudSettings, LONGEST_TTL};
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::traits::{ANY_IMAGE, Blobs, UploadConditions};
use reqwest::{Client, StatusCode};
use url::Url;

use crate::{PREFIX, open_bucket, random_key, settings, settings_through};

const TTL: Duration = Duration::from_secs(900);
/// Longer than anything that a test waits for.
const DEADLINE: Duration = Duration::from_secs(20);

async fn upload_url(bucket: &CloudObjects, key: &ObjectKey, content_type: &str) -> Url {
    let terms = UploadConditions { content_type, max_bytes: 1000, ttl: TTL };
    bucket.upload_url(key, terms).await.unwrap()
}

async fn put(url: &Url, content_type: Option<&str>) -> StatusCode {
    let mut request = Client::new().put(url.clone()).body("pixels");
    if let Some(content_type) = content_type {
        request = request.header("content-type", content_type);
    }
    request.send().await.unwrap().status()
}

async fn get(url: &Url) -> StatusCode {
    Client::new().get(url.clone()).send().await.unwrap().status()
}

fn replace_in_url(url: &Url, from: &str, to: &str) -> Url {
    assert!(url.as_str().contains(from), "{url} has no {from}");
    url.as_str().replacen(from, to, 1).parse().unwrap()
}

#[tokio::test]
async fn an_upload_is_bound_to_its_content_type() {
    let Some(server) = S3Server::start() else { return };
    let bucket = open_bucket(&settings(&server));
    for content_type in ["image/jpeg", "image/webp", "Image/JPEG; q=1"] {
        let key = random_key(ObjectRole::Original);
        let url = upload_url(&bucket, &key, content_type).await;
        assert_eq!(put(&url, Some("text/html")).await, StatusCode::FORBIDDEN);
        assert_eq!(put(&url, None).await, StatusCode::FORBIDDEN);
        assert_eq!(bucket.head(&key).await.unwrap(), None, "a refused upload created an object");
        assert_eq!(put(&url, Some(content_type)).await, StatusCode::OK);
        assert_eq!(bucket.read(&key, 1000).await.unwrap(), "pixels");
    }
}

#[tokio::test]
async fn a_selfies_upload_takes_any_image() {
    let Some(server) = S3Server::start() else { return };
    let bucket = open_bucket(&settings(&server));
    let url = upload_url(&bucket, &random_key(ObjectRole::Original), ANY_IMAGE).await;
    for content_type in ["image/jpeg", "image/png"] {
        assert_eq!(put(&url, Some(content_type)).await, StatusCode::OK);
    }
}

#[tokio::test]
async fn any_change_of_an_upload_url_is_refused() {
    let Some(server) = S3Server::start() else { return };
    let bucket = open_bucket(&settings(&server));
    let key = random_key(ObjectRole::Original);
    let url = upload_url(&bucket, &key, "image/jpeg").await;
    for wrong in [
        replace_in_url(&url, "/original", "/preview.jpg"),
        replace_in_url(&url, PREFIX, "a/c"),
        replace_in_url(&url, "X-Amz-Expires=900", "X-Amz-Expires=90000"),
        replace_in_url(&url, "content-type%3Bhost", "host"),
        replace_in_url(&url, "eu-central-1", "eu-central-2"),
    ] {
        assert_eq!(put(&wrong, Some("image/jpeg")).await, StatusCode::FORBIDDEN, "{wrong}");
    }
    assert_eq!(get(&url).await, StatusCode::FORBIDDEN, "an upload url does not download");
    let unsigned = replace_in_url(&url, url.query().unwrap(), "");
    assert_eq!(put(&unsigned, Some("image/jpeg")).await, StatusCode::FORBIDDEN);

    let variables = settings(&server).variables.into_iter();
    let another = |(name, value): (String, String)| match name.as_str() {
        "AWS_SECRET_ACCESS_KEY" => (name, "another".to_owned()),
        _ => (name, value),
    };
    let forger = CloudSettings { variables: variables.map(another).collect(), ..settings(&server) };
    let forged = upload_url(&crate::open_bucket(&forger), &key, "image/jpeg").await;
    assert_eq!(put(&forged, Some("image/jpeg")).await, StatusCode::FORBIDDEN);
    assert_eq!(bucket.head(&key).await.unwrap(), None);
}

#[tokio::test]
async fn a_preview_is_fetched_with_its_url_alone() {
    let Some(server) = S3Server::start() else { return };
    let bucket = open_bucket(&settings(&server));
    let key = random_key(ObjectRole::Preview);
    bucket.write(&key, "image/jpeg", Bytes::from_static(b"preview")).await.unwrap();
    let url = bucket.download_url(&key, TTL).await.unwrap();
    let response = Client::new().get(url.clone()).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "image/jpeg");
    assert_eq!(response.bytes().await.unwrap(), "preview");
    assert_eq!(get(&replace_in_url(&url, "preview.jpg", "original")).await, StatusCode::FORBIDDEN);
    assert_eq!(get(&replace_in_url(&url, "image%2Fjpeg", "text%2Fhtml")).await, StatusCode::FORBIDDEN);
    assert_eq!(put(&url, Some("image/jpeg")).await, StatusCode::FORBIDDEN);
    bucket.delete(&key).await.unwrap();
    assert_eq!(get(&url).await, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn an_original_is_served_as_bytes_whatever_type_was_declared() {
    let Some(server) = S3Server::start() else { return };
    let url =
        open_bucket(&settings(&server)).download_url(&random_key(ObjectRole::Original), TTL).await.unwrap();
    let pairs: Vec<_> = url.query_pairs().collect();
    assert!(pairs.contains(&("response-content-type".into(), "application/octet-stream".into())), "{url}");
}

#[tokio::test]
async fn urls_expire() {
    let Some(server) = S3Server::start() else { return };
    let bucket = open_bucket(&settings(&server));
    let key = random_key(ObjectRole::Preview);
    bucket.write(&key, "image/jpeg", Bytes::from_static(b"preview")).await.unwrap();
    let short_ttl = Duration::from_secs(1);
    let down = bucket.download_url(&key, short_ttl).await.unwrap();
    let terms = UploadConditions { content_type: "image/jpeg", max_bytes: 1000, ttl: short_ttl };
    let up = bucket.upload_url(&key, terms).await.unwrap();
    let start = Instant::now();
    while get(&down).await != StatusCode::FORBIDDEN
        || put(&up, Some("image/jpeg")).await != StatusCode::FORBIDDEN
    {
        assert!(start.elapsed() < DEADLINE, "the urls are still valid");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(get(&bucket.download_url(&key, TTL).await.unwrap()).await, StatusCode::OK);
}

#[tokio::test]
async fn no_url_is_valid_longer_than_a_week() {
    let Some(server) = S3Server::start() else { return };
    let bucket = open_bucket(&settings(&server));
    let key = random_key(ObjectRole::Preview);
    bucket.write(&key, "image/jpeg", Bytes::from_static(b"preview")).await.unwrap();
    let url = bucket.download_url(&key, LONGEST_TTL * 5).await.unwrap();
    let expires = url.query_pairs().find(|(name, _)| name == "X-Amz-Expires").unwrap().1.into_owned();
    assert_eq!(expires, LONGEST_TTL.as_secs().to_string());
    assert_eq!(get(&url).await, StatusCode::OK);
}

/// The service reaches the server through one address, browsers through another.
#[tokio::test]
async fn urls_are_signed_for_the_public_endpoint() {
    let Some(server) = S3Server::start() else { return };
    let inside = Proxy::in_front_of(server.address()).await;
    let public = format!("http://{}", server.address());
    let settings = CloudSettings {
        public_endpoint: Some(public.parse().unwrap()),
        ..settings_through(&server, &inside)
    };
    let bucket = open_bucket(&settings);
    let key = random_key(ObjectRole::Original);
    let url = upload_url(&bucket, &key, "image/jpeg").await;
    assert!(url.as_str().starts_with(&public), "{url}");
    // The host is signed: browsers could not use an address that only the service can reach.
    let (port, other) = (server.address().port().to_string(), inside.address().port().to_string());
    assert_eq!(put(&replace_in_url(&url, &port, &other), Some("image/jpeg")).await, StatusCode::FORBIDDEN);
    assert_eq!(put(&url, Some("image/jpeg")).await, StatusCode::OK);
    assert_eq!(bucket.read(&key, 1000).await.unwrap(), "pixels");
    assert_eq!(get(&bucket.download_url(&key, TTL).await.unwrap()).await, StatusCode::OK);
}
