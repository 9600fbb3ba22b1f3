//! The settings of a service under test.

use std::collections::HashMap;
use std::time::Duration;

use photofinish_api::context::{
    ApiSettings, BodyBudget, ConsoleSettings, CostPrices, Environment, SeatLimits, StorageOrigin,
};
use photofinish_store::blobs::local::uploads::UploadPace;
use photofinish_store::model::album::{AlbumConfig, DEFAULT_BIB_PATTERN, Recognition, RecognitionMode};
use photofinish_store::model::credit::CreditSettings;
use photofinish_store::model::rate::RateLimits;

use super::{CALIBRATION, DEADLINE, MAX_PHOTO_BYTES, MAX_PROBE_BYTES, MODEL, TestSetup};

/// What a service is started with unless a test changes it.
pub(super) fn setup() -> TestSetup {
    TestSetup {
        settings: settings(),
        seats: SeatLimits::for_open_files(1 << 20),
        credits: CreditSettings::default(),
        body_budget: BodyBudget::default(),
        rate_windows: None,
        change_store: Box::new(|_| {}),
    }
}

pub(super) fn settings() -> ApiSettings {
    let recognition = |confidence_threshold| Recognition {
        enabled: true,
        confidence_threshold,
        threshold_chosen: Some(false),
        mode: RecognitionMode::Photo,
        grid: None,
    };
    ApiSettings {
        environment: Environment::Local,
        rate_limits: RateLimits::default(),
        album_defaults: AlbumConfig {
            face: recognition(50.0),
            text: recognition(0.0),
            preview_max_dimension: 2048,
            preview_watermarked: false,
            thumbnail_max_dimension: 512,
            former_thumbnail_max_dimension: None,
            bib_pattern: DEFAULT_BIB_PATTERN.to_owned(),
            start_list: Default::default(),
            bib_format: Default::default(),
            retention: Default::default(),
            rest: Default::default(),
        },
        retention_max: Default::default(),
        cost_prices: Some(CostPrices { cpu_hour: 3.6, gpu_hour: 36.0, gb_month: 2e6 }),
        face_threshold_without_bibs: 60.0,
        max_body_bytes: 64 << 10,
        max_batch_bytes: 1 << 20,
        head_timeout: DEADLINE,
        idle_timeout: DEADLINE,
        stall_timeout: DEADLINE,
        body_timeout: DEADLINE,
        max_photo_bytes: MAX_PHOTO_BYTES,
        max_probe_bytes: MAX_PROBE_BYTES,
        upload_ttl: Duration::from_secs(900),
        upload_pace: UploadPace::SERVICE,
        download_ttl: Duration::from_secs(3600),
        probe_ttl: Duration::from_secs(3600),
        media_types: ["image/jpeg", "image/png", "image/webp"].map(str::to_owned).to_vec(),
        calibrations: HashMap::from([(MODEL.to_owned(), CALIBRATION)]),
        // The binary decodes the picture.
        check_watermark: |watermark| match watermark.picture.starts_with(b"\x89PNG") {
            true => Ok(()),
            false => Err("not a PNG".to_owned()),
        },
        admin_on_api_port: true,
        console: ConsoleSettings {
            is_enabled: true,
            is_on_api_port: true,
            public_url: "http://127.0.0.1:8080".parse().expect("a URL"),
            console_url: "http://127.0.0.1:8080".parse().expect("a URL"),
            gallery_url: None,
            storage_origin: StorageOrigin::default(),
            proxies: 0,
            console_proxies: 0,
            folder: None,
            version: "0.1.0",
        },
    }
}
