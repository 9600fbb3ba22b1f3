//! A storage that responds with 500, does not respond, is stopped or breaks connections: calls return an error in time,
//! never an incomplete photo, and everything works once it has recovered.

use std::fs::File;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use photofinish_servers::{Proxy, ProxyFault, S3Server};
use photofinish_store::blobs::cloud::{CloudObjects, CloudSettings, Timeouts};
use photofinish_store::model::ids::{AlbumId, OrganizationId};
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use photofinish_store::traits::{Blobs, Result};
use photofinish_store::{StoreError, StoreErrorKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::{PREFIX, open_bucket, pattern, random_key, settings, settings_through};

/// Shorter than the service's, so that tests without a response end soon; long enough for a loaded machine.
const TIMEOUTS: Timeouts = Timeouts {
    connect: Duration::from_secs(3),
    read: Duration::from_secs(3),
    retry: Duration::from_secs(4),
    total: Duration::from_secs(15),
    cleanup: Duration::from_secs(1),
};

/// As of a read that goes on for longer than requests are repeated: nothing of it is repeated within its request.
const LATE: Timeouts = Timeouts { retry: Duration::ZERO, ..TIMEOUTS };

const PHOTO_BYTES: usize = 1 << 20;

/// A client of the server through the proxy, and a photo in the bucket.
struct FaultyBucket {
    proxy: Proxy,
    bucket: CloudObjects,
    key: ObjectKey,
    photo: Bytes,
}

impl FaultyBucket {
    async fn in_front_of(server: &S3Server) -> Self {
        let proxy = Proxy::in_front_of(server.address()).await;
        let settings = CloudSettings { timeouts: TIMEOUTS, ..settings_through(server, &proxy) };
        let (bucket, key, photo) =
            (open_bucket(&settings), random_key(ObjectRole::Original), pattern(PHOTO_BYTES));
        bucket.write(&key, "image/jpeg", photo.clone()).await.unwrap();
        bucket.check().await.unwrap();
        Self { proxy, bucket, key, photo }
    }

    /// Another client through the proxy.
    fn open_bucket(&self, server: &S3Server, timeouts: Timeouts) -> CloudObjects {
        open_bucket(&CloudSettings { timeouts, ..settings_through(server, &self.proxy) })
    }

    /// Makes every call concurrently and returns their errors.
    async fn collect_errors(&self) -> Vec<StoreError> {
        let (bucket, key) = (&self.bucket, &self.key);
        let large = pattern(20 << 20);
        let (read, head, write, in_parts, delete, delete_album, check) = tokio::join!(
            bucket.read(key, u64::MAX),
            bucket.head(key),
            bucket.write(key, "image/jpeg", Bytes::from_static(b"other")),
            bucket.write(key, "image/jpeg", large),
            bucket.delete(key),
            bucket.delete_album(OrganizationId::generate(), AlbumId::generate()),
            bucket.check(),
        );
        let unit = |result: Result<()>| result.err();
        let errors = [
            read.err(),
            head.err(),
            unit(write),
            unit(in_parts),
            unit(delete),
            unit(delete_album),
            unit(check),
        ];
        errors
            .into_iter()
            .map(|error| error.expect("a call succeeded although the storage is down"))
            .collect()
    }

    async fn assert_all_unavailable(&self) {
        for error in self.collect_errors().await {
            assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
        }
    }

    /// Checks that the failed calls changed nothing.
    async fn assert_recovered(&self) {
        self.bucket.check().await.unwrap();
        assert!(self.bucket.read(&self.key, u64::MAX).await.unwrap() == self.photo, "the photo has changed");
        assert_eq!(self.bucket.head(&self.key).await.unwrap(), Some(PHOTO_BYTES as u64));
    }
}

#[tokio::test]
async fn a_storage_that_responds_with_500_is_unavailable_and_recovers() {
    let Some(server) = S3Server::start() else { return };
    let faulty = FaultyBucket::in_front_of(&server).await;
    faulty.proxy.set_fault(ProxyFault::Error500);
    faulty.assert_all_unavailable().await;
    faulty.proxy.set_fault(ProxyFault::None);
    faulty.assert_recovered().await;
}

#[tokio::test]
async fn a_bucket_that_keeps_older_versions_is_recognised() {
    let Some(server) = S3Server::start() else { return };
    let proxy = Proxy::in_front_of(server.address()).await;
    for (fault, keeps) in [(ProxyFault::None, false), (ProxyFault::Versions, true)] {
        proxy.set_fault(fault);
        let bucket = open_bucket(&settings_through(&server, &proxy));
        assert_eq!(bucket.keeps_versions(), None);
        bucket.check().await.unwrap();
        assert_eq!(bucket.keeps_versions(), Some(keeps));
    }
}

#[tokio::test]
async fn a_storage_that_does_not_respond_is_unavailable_and_recovers() {
    let Some(server) = S3Server::start() else { return };
    let faulty = FaultyBucket::in_front_of(&server).await;
    faulty.proxy.set_fault(ProxyFault::Silence);
    faulty.assert_all_unavailable().await;
    faulty.proxy.set_fault(ProxyFault::None);
    faulty.assert_recovered().await;
}

#[tokio::test]
async fn a_storage_that_was_stopped_is_unavailable_and_recovers() {
    let Some(mut server) = S3Server::start() else { return };
    let settings = CloudSettings { timeouts: TIMEOUTS, ..settings(&server) };
    let faulty = FaultyBucket { bucket: open_bucket(&settings), ..FaultyBucket::in_front_of(&server).await };
    server.kill();
    faulty.assert_all_unavailable().await;
    server.restart();
    faulty.assert_recovered().await;
}

#[tokio::test]
async fn a_body_that_is_cut_each_time_is_an_error_and_no_short_photo() {
    let Some(server) = S3Server::start() else { return };
    let faulty = FaultyBucket::in_front_of(&server).await;
    faulty.proxy.set_fault(ProxyFault::CutResponse { after: 20_000, connections: usize::MAX });
    let error = faulty.bucket.read(&faulty.key, u64::MAX).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    assert!(faulty.proxy.cut_connections() > 1, "the read was not retried");
    faulty.proxy.set_fault(ProxyFault::None);
    faulty.assert_recovered().await;
}

#[tokio::test]
async fn a_body_that_is_cut_once_is_resumed() {
    let Some(server) = S3Server::start() else { return };
    let faulty = FaultyBucket::in_front_of(&server).await;
    faulty.proxy.set_fault(ProxyFault::CutResponse { after: 300_000, connections: 1 });
    assert!(faulty.bucket.read(&faulty.key, u64::MAX).await.unwrap() == faulty.photo, "the bytes differ");
    assert_eq!(faulty.proxy.cut_connections(), 1);
}

/// Serves one half of an object, breaks off, and serves the other half of what has replaced it. Returns the two requests in the end.
async fn serve_replaced_object() -> (SocketAddr, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let responses = [
        "200 OK\r\netag: \"a\"\r\ncontent-length: 10",
        "206 Partial Content\r\netag: \"b\"\r\ncontent-length: 5\r\ncontent-range: bytes 5-9/10",
    ];
    let serving = tokio::spawn(async move {
        let mut requests = Vec::new();
        for response in responses {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(client.read_u8().await.unwrap());
            }
            requests.push(String::from_utf8(request).unwrap());
            let response = format!("HTTP/1.1 {response}\r\nconnection: close\r\n\r\npixel");
            client.write_all(response.as_bytes()).await.unwrap();
        }
        requests
    });
    (address, serving)
}

/// Reads of minutes began anew at the first connection that broke.
#[tokio::test]
async fn a_long_read_whose_connection_breaks_is_continued() {
    let Some(server) = S3Server::start() else { return };
    let faulty = FaultyBucket::in_front_of(&server).await;
    let bucket = faulty.open_bucket(&server, LATE);
    faulty.proxy.set_fault(ProxyFault::CutResponse { after: 300_000, connections: 2 });
    let bytes = bucket.read_into(&faulty.key, PHOTO_BYTES as u64, Vec::new()).await.unwrap();
    assert!(bytes == faulty.photo, "the bytes differ");
    assert_eq!(faulty.proxy.cut_connections(), 2);
}

#[tokio::test]
async fn a_long_read_whose_connection_breaks_each_time_ends_with_an_error() {
    let Some(server) = S3Server::start() else { return };
    let faulty = FaultyBucket::in_front_of(&server).await;
    let bucket = faulty.open_bucket(&server, LATE);
    faulty.proxy.set_fault(ProxyFault::CutResponse { after: 20_000, connections: usize::MAX });
    let error = bucket.read_into(&faulty.key, PHOTO_BYTES as u64, Vec::new()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    assert_eq!(faulty.proxy.cut_connections(), 6, "it is continued five times");
}

#[tokio::test]
async fn a_read_is_not_continued_with_the_bytes_of_another_object() {
    let Some(server) = S3Server::start() else { return };
    let (address, requests) = serve_replaced_object().await;
    let variables = server.variables_through(address);
    let bucket = open_bucket(&CloudSettings { variables, timeouts: LATE, ..CloudSettings::default() });
    let error = bucket.read_into(&random_key(ObjectRole::Original), 10, Vec::new()).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    let requests = requests.await.unwrap();
    for header in ["range: bytes=5-9\r\n", "if-match: \"a\"\r\n"] {
        assert!(requests[1].contains(header), "{}", requests[1]);
    }
}

/// Many reads share a slow link: they were all given up and begun again, and none ever ended.
#[tokio::test]
async fn a_read_that_goes_on_may_take_longer_than_a_call() {
    let Some(server) = S3Server::start() else { return };
    let faulty = FaultyBucket::in_front_of(&server).await;
    let timeouts = Timeouts { total: Duration::from_secs(2), ..TIMEOUTS };
    let bucket = faulty.open_bucket(&server, timeouts);
    faulty.proxy.set_fault(ProxyFault::Slow { bytes_per_second: PHOTO_BYTES as u64 / 3 });
    let bytes = bucket.read_into(&faulty.key, PHOTO_BYTES as u64, Vec::new()).await.unwrap();
    assert!(bytes == faulty.photo, "the bytes differ");
    let error = bucket.read(&faulty.key, PHOTO_BYTES as u64).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "requests wait for it: {error}");
}

#[tokio::test]
async fn an_upload_that_is_cut_leaves_what_was_there() {
    let Some(server) = S3Server::start() else { return };
    let faulty = FaultyBucket::in_front_of(&server).await;
    for (length, after) in [(2 << 20, 500_000), (20 << 20, 3 << 20)] {
        faulty.proxy.set_fault(ProxyFault::CutRequest { after });
        let error = faulty.bucket.write(&faulty.key, "image/jpeg", pattern(length + 1)).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
        assert!(faulty.proxy.cut_connections() > 0);
        faulty.proxy.set_fault(ProxyFault::None);
        faulty.assert_recovered().await;
    }
}

#[tokio::test]
async fn an_object_larger_than_asked_is_not_fetched() {
    let Some(server) = S3Server::start() else { return };
    let faulty = FaultyBucket::in_front_of(&server).await;
    let size: u64 = 256 << 20;
    let file = server.bucket().join(PREFIX).join(faulty.key.as_str());
    File::options().write(true).open(file).unwrap().set_len(size).unwrap();
    faulty.proxy.set_fault(ProxyFault::CutResponse { after: u64::MAX, connections: usize::MAX });
    let error = faulty.bucket.read(&faulty.key, 50_000_000).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::TooLarge, "{error}");
    // At most what fits into the socket buffers.
    assert!(faulty.proxy.response_bytes() < size / 4, "{} bytes were read", faulty.proxy.response_bytes());
}
