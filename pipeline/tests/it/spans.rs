//! The tracing spans of photos: one span per lease, with a child span for each stage that worked on it.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use photofinish_models::fakes::FakeModels;
use photofinish_pipeline::{ProbeService, ReservedCores};
use photofinish_store::model::ids::{OrganizationId, PhotoId};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Instrument, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::support::{PROBE_SETTINGS, PipelineFixture, album_config, encode_jpeg, runner_picture, wait_for};

/// The stages that process a photo, in order.
const STAGES: [&str; 7] = ["fetch", "decode", "resize", "detect", "embed", "read", "index"];

/// A span or an event, with its fields.
#[derive(Clone, Debug, Default)]
struct RecordedSpan {
    /// The id in the registry, which is reused when the span is closed.
    id: u64,
    name: &'static str,
    fields: Vec<(&'static str, String)>,
    /// The `photo.id` of this span or of its nearest ancestor with one.
    photo: Option<String>,
    is_closed: bool,
}

impl RecordedSpan {
    fn field(&self, name: &str) -> &str {
        self.fields.iter().find(|(field, _)| *field == name).map_or("", |(_, value)| value)
    }
}

impl Visit for RecordedSpan {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.fields.push((field.name(), format!("{value:?}").trim_matches('"').to_owned()));
    }
}

/// The span of one lease of a photo, and those of the stages that worked on it.
#[derive(Clone, Debug)]
struct PhotoSpan {
    photo: RecordedSpan,
    stages: Vec<RecordedSpan>,
}

impl PhotoSpan {
    fn stage_names(&self) -> Vec<&str> {
        self.stages.iter().map(|stage| stage.field("stage")).collect()
    }
}

/// Collects the spans, in the order in which they began, and the events of all tests. It is the global subscriber,
/// because the pipeline has its own threads.
#[derive(Clone, Debug, Default)]
struct SpanCollector {
    spans: Arc<Mutex<Vec<RecordedSpan>>>,
    events: Arc<Mutex<Vec<RecordedSpan>>>,
}

impl SpanCollector {
    fn get() -> &'static Self {
        static COLLECTOR: OnceLock<SpanCollector> = OnceLock::new();
        COLLECTOR.get_or_init(|| {
            let collector = Self::default();
            let targets = Targets::new()
                .with_target("photofinish_pipeline", LevelFilter::DEBUG)
                .with_target(module_path!(), LevelFilter::DEBUG);
            let subscriber = tracing_subscriber::registry().with(collector.clone().with_filter(targets));
            tracing::subscriber::set_global_default(subscriber).unwrap();
            collector
        })
    }

    /// Returns the spans of a photo, one per lease.
    fn photo_spans(&self, photo: PhotoId) -> Vec<PhotoSpan> {
        let mut photo_spans: Vec<PhotoSpan> = Vec::new();
        for span in self.spans_about(&photo.to_string()) {
            match (span.name, photo_spans.last_mut()) {
                ("photo", _) => photo_spans.push(PhotoSpan { photo: span, stages: Vec::new() }),
                ("stage", Some(photo_span)) => photo_span.stages.push(span),
                (name, _) => panic!("a span {name} of photo {photo}"),
            }
        }
        photo_spans
    }

    /// Waits until the only span of a photo is closed, and returns it.
    fn finished_photo_span(&self, photo: PhotoId) -> PhotoSpan {
        let mut spans = wait_for("the end of the photo's span", || {
            let spans = self.photo_spans(photo);
            spans.iter().all(|span| span.photo.is_closed).then_some(spans)
        });
        assert_eq!(spans.len(), 1, "{spans:?}");
        spans.remove(0)
    }

    fn spans_about(&self, photo: &str) -> Vec<RecordedSpan> {
        let spans = self.spans.lock().unwrap();
        spans.iter().filter(|span| span.photo.as_deref() == Some(photo)).cloned().collect()
    }

    fn events_about(&self, photo: PhotoId) -> Vec<RecordedSpan> {
        let photo = Some(photo.to_string());
        self.events.lock().unwrap().iter().filter(|event| event.photo == photo).cloned().collect()
    }

    fn update_span(&self, id: &Id, update: impl FnOnce(&mut RecordedSpan)) {
        // The latest one, because the registry reuses ids.
        if let Some(span) = self.spans.lock().unwrap().iter_mut().rfind(|span| span.id == id.into_u64()) {
            update(span);
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanCollector {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut span =
            RecordedSpan { id: id.into_u64(), name: attributes.metadata().name(), ..RecordedSpan::default() };
        attributes.record(&mut span);
        let parent_id = context.span(id).and_then(|span| span.parent().map(|parent| parent.id().into_u64()));
        let mut spans = self.spans.lock().unwrap();
        let parent = spans.iter().rev().find(|span| Some(span.id) == parent_id);
        span.photo = match span.field("photo.id") {
            "" => parent.and_then(|parent| parent.photo.clone()),
            photo => Some(photo.to_owned()),
        };
        spans.push(span);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _context: Context<'_, S>) {
        self.update_span(id, |span| values.record(span));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut recorded = RecordedSpan { name: event.metadata().name(), ..RecordedSpan::default() };
        event.record(&mut recorded);
        let photo_span =
            context.event_scope(event).and_then(|mut scope| scope.find(|span| span.name() == "photo"));
        if let Some(photo_span) = photo_span {
            self.update_span(&photo_span.id(), |span| recorded.photo.clone_from(&span.photo));
        }
        self.events.lock().unwrap().push(recorded);
    }

    fn on_close(&self, id: Id, _context: Context<'_, S>) {
        self.update_span(&id, |span| span.is_closed = true);
    }
}

#[test]
fn a_photo_span_contains_every_stage_and_the_outcome() {
    let collector = SpanCollector::get();
    let fixture = PipelineFixture::new();
    let album = fixture.create_album(album_config());
    let complete = encode_jpeg(&runner_picture(3, "417"));
    let truncated = complete[..complete.len() / 2].to_vec();
    let photos = fixture.upload_photos(album, &[complete, truncated]);
    fixture.process_album(album, FakeModels::default());

    let span = collector.finished_photo_span(photos[0]);
    let photo = &span.photo;
    assert_eq!((photo.field("outcome"), photo.field("attempt")), ("ready", "1"));
    assert_eq!(photo.field("album.id"), album.to_string());
    assert!(photo.field("queued_ms").parse::<u64>().is_ok(), "{photo:?}");
    assert_eq!(span.stage_names(), STAGES);
    for stage in &span.stages {
        assert!(stage.is_closed, "{stage:?}");
        assert!(stage.field("batch_size").parse::<usize>().unwrap() >= 1, "{stage:?}");
        assert!(stage.field("wait_ms").parse::<u64>().is_ok(), "{stage:?}");
    }

    let span = collector.finished_photo_span(photos[1]);
    assert_eq!(span.photo.field("outcome"), "failed");
    assert_eq!(span.stage_names(), STAGES[..2]);
    let events = collector.events_about(photos[1]);
    assert!(events.iter().any(|event| event.field("message") == "photo failed"), "{events:?}");
}

#[test]
fn a_photo_given_back_gets_a_new_span_next_time() {
    let collector = SpanCollector::get();
    let fixture = PipelineFixture::new();
    let album = fixture.create_album(album_config());
    let slow = FakeModels { delay: Duration::from_millis(400), ..FakeModels::default() };
    let photos = fixture.upload_photos(album, &vec![encode_jpeg(&runner_picture(3, "417")); 12]);
    let blobs = Arc::clone(&fixture.store.blobs);
    let pipeline = fixture.start_pipeline_with(Arc::new(slow), blobs, Duration::from_millis(1));
    wait_for("a ready photo", || (fixture.state_counts(album).ready > 0).then_some(()));
    assert!(pipeline.stop().given_back > 0);
    let is_given_back = |photo: &&PhotoId| {
        let spans = collector.photo_spans(**photo);
        spans.last().is_some_and(|span| span.photo.is_closed && span.photo.field("outcome") == "given_back")
    };
    let given_back = *photos.iter().find(is_given_back).unwrap();

    fixture.process_album(album, FakeModels::default());
    let spans = collector.photo_spans(given_back);
    assert_eq!(spans.len(), 2, "{spans:?}");
    assert_eq!((spans[1].photo.field("outcome"), spans[1].photo.field("attempt")), ("ready", "1"));
    assert_eq!(spans[1].stage_names(), STAGES);
}

#[test]
fn the_stage_span_of_a_selfie_belongs_to_its_request() {
    let collector = SpanCollector::get();
    let fixture = PipelineFixture::new();
    let service =
        ProbeService::start(vec![Arc::new(FakeModels::default())], PROBE_SETTINGS, ReservedCores::default());
    let request = tracing::info_span!("request", photo.id = "a selfie of this test");
    let selfie = encode_jpeg(&runner_picture(3, "417"));
    let search = async {
        service.take_turn(OrganizationId::generate()).await?.embed(selfie.into(), Arc::default()).await
    };
    fixture.runtime.block_on(search.instrument(request)).unwrap();
    service.stop();
    let spans = collector.spans_about("a selfie of this test");
    assert_eq!(spans.len(), 2, "{spans:?}");
    assert_eq!((spans[1].field("stage"), spans[1].is_closed), ("probe", true));
}
