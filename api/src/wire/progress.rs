//! The progress of an album, as `albums/progress` returns it.

use photofinish_store::model::ids::AlbumId;
use photofinish_store::model::photo::StateCounts;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Output, sample};

/// How many photos of an album are in which state.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Progress {
    album_id: Uuid,
    #[schema(value_type = f64, minimum = 0)]
    total: u64,
    #[schema(value_type = f64, minimum = 0)]
    awaiting_upload: u64,
    #[schema(value_type = f64, minimum = 0)]
    queued: u64,
    #[schema(value_type = f64, minimum = 0)]
    processing: u64,
    #[schema(value_type = f64, minimum = 0)]
    ready: u64,
    #[schema(value_type = f64, minimum = 0)]
    failed: u64,
    /// Photos finished per second over the last ten seconds; null when idle.
    #[schema(required, minimum = 0)]
    photos_per_second: Option<f64>,
    /// Estimated seconds until the album is idle; null when idle, and while no photo is finished.
    #[schema(required, minimum = 0)]
    seconds_left: Option<f64>,
    /// The stage that limits the throughput; null when idle, and when no stage does.
    #[schema(required)]
    bottleneck: Option<String>,
}

/// How fast an album is being processed.
pub(crate) struct Throughput {
    /// Photos that became ready or failed, per second.
    pub(crate) photos_per_second: f64,
    /// The stage that limits the throughput, if one does.
    pub(crate) bottleneck: Option<String>,
}

impl Progress {
    /// `throughput` is `None` for an idle album.
    pub(crate) fn new(album: AlbumId, counts: &StateCounts, throughput: Option<Throughput>) -> Self {
        let left = (counts.queued + counts.processing) as f64;
        let rate = throughput.as_ref().map(|throughput| throughput.photos_per_second);
        let seconds_left = rate.filter(|rate| *rate > 0.0).map(|rate| (left / rate).ceil());
        Self {
            album_id: album.0,
            total: counts.total(),
            awaiting_upload: counts.awaiting_upload,
            queued: counts.queued,
            processing: counts.processing,
            ready: counts.ready,
            failed: counts.failed,
            photos_per_second: rate,
            seconds_left,
            bottleneck: throughput.and_then(|throughput| throughput.bottleneck),
        }
    }

    /// Whether no photo is queued or processing. Photos that await their upload do not count: nobody works on them.
    pub(crate) fn is_idle(&self) -> bool {
        self.queued == 0 && self.processing == 0
    }
}

impl Output for Progress {
    fn example() -> Self {
        let counts = StateCounts { queued: 388, processing: 12, ready: 1080, ..StateCounts::default() };
        let throughput = Throughput { photos_per_second: 25.0, bottleneck: Some("read".to_owned()) };
        Self::new(sample::ALBUM, &counts, Some(throughput))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_idle_album_has_no_throughput() {
        let counts = StateCounts { ready: 3, failed: 1, awaiting_upload: 2, ..StateCounts::default() };
        let progress = Progress::new(sample::ALBUM, &counts, None);
        assert!(progress.is_idle());
        let progress = serde_json::to_value(progress).unwrap();
        assert_eq!(progress["total"], json!(6));
        assert_eq!(progress["photosPerSecond"], json!(null));
        assert_eq!(progress["secondsLeft"], json!(null));
        assert_eq!(progress["bottleneck"], json!(null));
    }

    #[test]
    fn seconds_left_follow_from_the_throughput() {
        let counts = StateCounts { queued: 9, processing: 1, ..StateCounts::default() };
        let throughput = Throughput { photos_per_second: 4.0, bottleneck: None };
        let progress = Progress::new(sample::ALBUM, &counts, Some(throughput));
        assert_eq!(serde_json::to_value(progress).unwrap()["secondsLeft"], json!(3.0));
    }
}
