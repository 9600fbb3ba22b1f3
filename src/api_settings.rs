//! The settings of the API, from the configuration.

use std::time::Duration;

use photofinish_api::context::{ApiSettings, ConsoleSettings, StorageOrigin};
use photofinish_pipeline::marking::WatermarkPicture;
use photofinish_store::Store;
use photofinish_store::blobs::local::uploads::UploadPace;
use photofinish_store::model::album::{AlbumConfig, DEFAULT_BIB_PATTERN, Recognition, RecognitionMode};
use photofinish_store::model::ids::{AlbumId, OrganizationId, PhotoId};
use photofinish_store::model::object_key::{ObjectKey, ObjectRole};
use uuid::Uuid;

use crate::config::Config;
use crate::config::settings::Settings;
use crate::models;

/// How long the head of a request may take, counted from its first byte; for the first one from the connection. A head
/// is one packet of the slowest network.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection waits for its next request. Longer than the idle timeout of common proxies, so that the proxy
/// closes idle connections and no request meets a closing one.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// How long a response waits for a client that does not read it. The operating system reports progress only when a third
/// of its send buffer is free, which takes a slow network seconds.
const STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest JSON body of an operation on one object: a new album with a hundred tags of a hundred characters fits.
const MAX_BODY_BYTES: u64 = 64 << 10;
/// Largest JSON body of a batch: 1000 file names of 255 characters, each escaped in six bytes, fits.
const MAX_BATCH_BYTES: u64 = 4 << 20;
/// Between the first two tries to learn the origin of the storage, and between the last ones.
const FIRST_RETRY: Duration = Duration::from_secs(2);
const LAST_RETRY: Duration = Duration::from_secs(60);
/// Longest side of a preview and of a thumbnail in a new album, in pixels.
const PREVIEW_MAX_DIMENSION: u32 = 2048;
const THUMBNAIL_MAX_DIMENSION: u32 = 512;

/// Returns the origin of the URLs under which browsers load pictures. Where the storage cannot sign one now, because nobody
/// gives credentials for instance, it is asked for again until it can.
pub async fn find_storage_origin(store: &Store) -> StorageOrigin {
    let origin = StorageOrigin::default();
    if !try_to_find(store, &origin).await {
        let (store, origin) = (store.clone(), origin.clone());
        tokio::spawn(async move {
            let mut retry_in = FIRST_RETRY;
            loop {
                tokio::time::sleep(retry_in).await;
                if try_to_find(&store, &origin).await {
                    return;
                }
                retry_in = (retry_in * 2).min(LAST_RETRY);
            }
        });
    }
    origin
}

/// Returns whether it was found.
async fn try_to_find(store: &Store, origin: &StorageOrigin) -> bool {
    let nobody = (OrganizationId(Uuid::nil()), AlbumId(Uuid::nil()), PhotoId(Uuid::nil()));
    let key = ObjectKey::photo(nobody.0, nobody.1, nobody.2, ObjectRole::Preview);
    match store.blobs.download_url(&key, Duration::from_secs(60)).await {
        Ok(url) => {
            origin.set(url.origin().ascii_serialization());
            true
        }
        Err(error) => {
            tracing::warn!(%error, "failed to sign a URL of the storage, pages show no pictures until it succeeds");
            false
        }
    }
}

/// Returns the settings of the API.
pub fn api_settings(config: &Config, storage_origin: StorageOrigin) -> ApiSettings {
    let recognition = |confidence_threshold| Recognition {
        enabled: true,
        confidence_threshold,
        threshold_chosen: Some(false),
        mode: RecognitionMode::Photo,
        grid: None,
    };
    let Settings { service, storage, api, credits, console, .. } = &config.settings;
    ApiSettings {
        environment: service.environment,
        rate_limits: credits.rate_limits(service.environment),
        album_defaults: AlbumConfig {
            face: recognition(api.face_threshold),
            text: recognition(api.text_threshold),
            preview_max_dimension: PREVIEW_MAX_DIMENSION,
            preview_watermarked: false,
            thumbnail_max_dimension: THUMBNAIL_MAX_DIMENSION,
            former_thumbnail_max_dimension: None,
            bib_pattern: DEFAULT_BIB_PATTERN.to_owned(),
            start_list: Default::default(),
            bib_format: Default::default(),
            retention: api.retention.unwrap_or_default(),
            rest: Default::default(),
        },
        retention_max: api.retention_max.unwrap_or_default(),
        cost_prices: config.settings.costs.cost_prices,
        face_threshold_without_bibs: api.face_threshold_without_bibs,
        max_body_bytes: MAX_BODY_BYTES,
        max_batch_bytes: MAX_BATCH_BYTES,
        head_timeout: HEAD_TIMEOUT,
        idle_timeout: IDLE_TIMEOUT,
        stall_timeout: STALL_TIMEOUT,
        body_timeout: api.body_timeout,
        max_photo_bytes: storage.max_photo_bytes,
        max_probe_bytes: api.max_probe_bytes,
        upload_ttl: api.upload_ttl,
        upload_pace: UploadPace::SERVICE,
        download_ttl: api.download_ttl,
        probe_ttl: api.probe_ttl,
        media_types: storage.media_types(),
        calibrations: models::calibrations(),
        check_watermark: |watermark| {
            WatermarkPicture::open(watermark).map(drop).map_err(|error| error.to_string())
        },
        admin_on_api_port: service.admin_listen.is_none(),
        console: ConsoleSettings {
            is_enabled: console.is_enabled(),
            is_on_api_port: console.console_listen.is_none(),
            public_url: config.public_url.clone(),
            console_url: config.console_url().clone(),
            gallery_url: console.gallery_url.clone(),
            storage_origin,
            proxies: console.proxies,
            console_proxies: console.console_proxies,
            folder: console.console_dir.clone(),
            version: env!("CARGO_PKG_VERSION"),
        },
    }
}
