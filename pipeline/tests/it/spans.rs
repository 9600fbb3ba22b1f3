//! The spans that follow a photo: one for its way, one for each stage's work on it, whatever its end.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use photofinish_models::fakes::FakeModels;
use photofinish_store::model::ids::PhotoId;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::support::{PipelineFixture, album_config, encode_jpeg, runner_picture, wait_for};

/// The stages that have a photo, in order.
const STAGES: [&str; 7] = ["fetch", "decode", "resize", "detect", "embed", "read", "index"];

/// A span or a log line, with its fields.
#[derive(Clone, Debug, Default)]
struct RecordedSpan {
    name: &'static str,
    fields: Vec<(&'static str, String)>,
    /// The photo whose span it is, or in whose span it is.
    photo: Option<String>,
    is_over: bool,
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

/// Everything seen, spans in the order in which they began. Global: the pipeline has threads of its own.
#[derive(Clone, Debug, Default)]
struct SpanCollector {
    spans: Arc<Mutex<Vec<(u64, RecordedSpan)>>>,
    lines: Arc<Mutex<Vec<RecordedSpan>>>,
}

impl SpanCollector {
    fn get() -> &'static Self {
        static COLLECTOR: OnceLock<SpanCollector> = OnceLock::new();
        COLLECTOR.get_or_init(|| {
            let collector = Self::default();
            let ours = Targets::new()
                .with_target("photofinish_pipeline", LevelFilter::DEBUG)
                .with_target(module_path!(), LevelFilter::DEBUG);
            let subscriber = tracing_subscriber::registry().with(collector.clone().with_filter(ours));
            tracing::subscriber::set_global_default(subscriber).unwrap();
            collector
        })
    }

    /// The ways of a photo, one a lease, each with the stages that worked on it.
    fn photo_spans(&self, photo: PhotoId) -> Vec<(RecordedSpan, Vec<RecordedSpan>)> {
        let mut ways: Vec<(RecordedSpan, Vec<RecordedSpan>)> = Vec::new();
        let photo = photo.to_string();
        for (_, seen) in
            self.spans.lock().unwrap().iter().filter(|(_, seen)| seen.photo.as_ref() == Some(&photo))
        {
            match (seen.name, ways.last_mut()) {
                ("photo", _) => ways.push((seen.clone(), Vec::new())),
                ("stage", Some((_, stages))) => stages.push(seen.clone()),
                (name, _) => panic!("a span {name} of photo {photo}"),
            }
        }
        ways
    }

    /// The only way of a photo, which is over.
    fn finished_photo_span(&self, photo: PhotoId) -> (RecordedSpan, Vec<RecordedSpan>) {
        let mut ways = wait_for("the end of its span", || {
            let ways = self.photo_spans(photo);
            ways.iter().all(|(way, _)| way.is_over).then_some(ways)
        });
        assert_eq!(ways.len(), 1, "{ways:?}");
        ways.remove(0)
    }

    fn lines_about(&self, photo: PhotoId) -> Vec<RecordedSpan> {
        let photo = Some(photo.to_string());
        self.lines.lock().unwrap().iter().filter(|line| line.photo == photo).cloned().collect()
    }

    fn update_span(&self, id: &Id, change: impl FnOnce(&mut RecordedSpan)) {
        // The registry uses an id again once its span is over.
        if let Some((_, seen)) =
            self.spans.lock().unwrap().iter_mut().rfind(|(span, _)| *span == id.into_u64())
        {
            change(seen);
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for SpanCollector {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut seen = RecordedSpan { name: attributes.metadata().name(), ..RecordedSpan::default() };
        attributes.record(&mut seen);
        let parent = context.span(id).and_then(|span| span.parent().map(|parent| parent.id().into_u64()));
        let mut spans = self.spans.lock().unwrap();
        let of_parent = spans.iter().rev().find(|(span, _)| Some(*span) == parent).map(|(_, seen)| seen);
        seen.photo = match seen.field("photo.id") {
            "" => of_parent.and_then(|parent| parent.photo.clone()),
            photo => Some(photo.to_owned()),
        };
        spans.push((id.into_u64(), seen));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _context: Context<'_, S>) {
        self.update_span(id, |seen| values.record(seen));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = RecordedSpan { name: event.metadata().name(), ..RecordedSpan::default() };
        event.record(&mut line);
        let around =
            context.event_scope(event).and_then(|mut scope| scope.find(|span| span.name() == "photo"));
        if let Some(around) = around {
            self.update_span(&around.id(), |seen| line.photo.clone_from(&seen.photo));
        }
        self.lines.lock().unwrap().push(line);
    }

    fn on_close(&self, id: Id, _context: Context<'_, S>) {
        self.update_span(&id, |seen| seen.is_over = true);
    }
}

fn stage_names(stages: &[RecordedSpan]) -> Vec<&str> {
    stages.iter().map(|stage| stage.field("stage")).collect()
}

#[test]
fn a_photo_span_contains_every_stage_and_the_outcome() {
    let collector = SpanCollector::get();
    let house = PipelineFixture::new();
    let album = house.create_album(album_config());
    let pipeline = house.start_pipeline(FakeModels::default());
    let whole = encode_jpeg(&runner_picture(3, "417"));
    let torn = whole[..whole.len() / 2].to_vec();
    let photos = house.upload_photos(album, &[whole, torn]);
    house.wait_until_processed(album);
    pipeline.stop();

    let (way, stages) = collector.finished_photo_span(photos[0]);
    assert_eq!((way.field("outcome"), way.field("attempt")), ("ready", "1"));
    assert_eq!(way.field("album.id"), album.to_string());
    assert!(way.field("queued_ms").parse::<u64>().is_ok(), "{way:?}");
    assert_eq!(stage_names(&stages), STAGES);
    for stage in &stages {
        assert!(stage.is_over, "{stage:?}");
        assert!(stage.field("batch_size").parse::<usize>().unwrap() >= 1, "{stage:?}");
        assert!(stage.field("wait_ms").parse::<u64>().is_ok(), "{stage:?}");
    }

    let (way, stages) = collector.finished_photo_span(photos[1]);
    assert_eq!(way.field("outcome"), "failed");
    assert_eq!(stage_names(&stages), STAGES[..2]);
    let lines = collector.lines_about(photos[1]);
    assert!(lines.iter().any(|line| line.field("message") == "photo failed"), "{lines:?}");
}

#[test]
fn a_photo_given_back_gets_a_new_span_next_time() {
    let collector = SpanCollector::get();
    let house = PipelineFixture::new();
    let album = house.create_album(album_config());
    let slow = FakeModels { delay: Duration::from_millis(400), ..FakeModels::default() };
    let photos = house.upload_photos(album, &vec![encode_jpeg(&runner_picture(3, "417")); 12]);
    let pipeline =
        house.start_pipeline_with(Arc::new(slow), Arc::clone(&house.store.blobs), Duration::from_millis(1));
    wait_for("one that is done", || (house.state_counts(album).ready > 0).then_some(()));
    assert!(pipeline.stop().given_back > 0);
    let is_returned = |photo: &&PhotoId| {
        let ways = collector.photo_spans(**photo);
        ways.last().is_some_and(|(way, _)| way.is_over && way.field("outcome") == "given_back")
    };
    let returned = *photos.iter().find(is_returned).unwrap();

    let pipeline = house.start_pipeline(FakeModels::default());
    house.wait_until_processed(album);
    pipeline.stop();
    let ways = collector.photo_spans(returned);
    assert_eq!(ways.len(), 2, "{ways:?}");
    assert_eq!((ways[1].0.field("outcome"), ways[1].0.field("attempt")), ("ready", "1"));
    assert_eq!(stage_names(&ways[1].1), STAGES);
}

#[test]
fn the_stage_span_of_a_selfie_belongs_to_its_request() {
    let collector = SpanCollector::get();
    let house = PipelineFixture::new();
    let desk =
        photofinish_pipeline::ProbeService::start(Arc::new(FakeModels::default()), crate::support::LIMITS, 4);
    let request = tracing::info_span!("request", photo.id = "a selfie of this test");
    let selfie = encode_jpeg(&runner_picture(3, "417"));
    house.runtime.block_on(tracing::Instrument::instrument(desk.embed(selfie.into()), request)).unwrap();
    desk.stop();
    let spans = collector.spans.lock().unwrap();
    let ours: Vec<_> =
        spans.iter().filter(|(_, seen)| seen.photo.as_deref() == Some("a selfie of this test")).collect();
    assert_eq!(ours.len(), 2, "{ours:?}");
    assert_eq!((ours[1].1.field("stage"), ours[1].1.is_over), ("probe", true));
}
