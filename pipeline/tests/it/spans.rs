//! The spans that follow a photo: one for its way, one for each stage's work on it, whatever its end.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use photofinish_models::fakes::FakeModels;
use photofinish_store::ids::PhotoId;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::support::{House, config, jpeg, scene, wait_for};

/// The stages that have a photo, in order.
const STAGES: [&str; 7] = ["fetch", "decode", "resize", "detect", "embed", "read", "index"];

/// A span or a log line, with its fields.
#[derive(Clone, Debug, Default)]
struct Seen {
    name: &'static str,
    fields: Vec<(&'static str, String)>,
    /// The photo whose span it is, or in whose span it is.
    photo: Option<String>,
    is_over: bool,
}

impl Seen {
    fn field(&self, name: &str) -> &str {
        self.fields.iter().find(|(field, _)| *field == name).map_or("", |(_, value)| value)
    }
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.fields.push((field.name(), format!("{value:?}").trim_matches('"').to_owned()));
    }
}

/// Everything seen, spans in the order in which they began. Global: the pipeline has threads of its own.
#[derive(Clone, Debug, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<(u64, Seen)>>>,
    lines: Arc<Mutex<Vec<Seen>>>,
}

impl Collector {
    fn get() -> &'static Self {
        static COLLECTOR: OnceLock<Collector> = OnceLock::new();
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
    fn ways(&self, photo: PhotoId) -> Vec<(Seen, Vec<Seen>)> {
        let mut ways: Vec<(Seen, Vec<Seen>)> = Vec::new();
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
    fn way(&self, photo: PhotoId) -> (Seen, Vec<Seen>) {
        let mut ways = wait_for("the end of its span", || {
            let ways = self.ways(photo);
            ways.iter().all(|(way, _)| way.is_over).then_some(ways)
        });
        assert_eq!(ways.len(), 1, "{ways:?}");
        ways.remove(0)
    }

    fn lines_about(&self, photo: PhotoId) -> Vec<Seen> {
        let photo = Some(photo.to_string());
        self.lines.lock().unwrap().iter().filter(|line| line.photo == photo).cloned().collect()
    }

    fn change(&self, id: &Id, change: impl FnOnce(&mut Seen)) {
        // The registry uses an id again once its span is over.
        if let Some((_, seen)) =
            self.spans.lock().unwrap().iter_mut().rfind(|(span, _)| *span == id.into_u64())
        {
            change(seen);
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collector {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut seen = Seen { name: attributes.metadata().name(), ..Seen::default() };
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
        self.change(id, |seen| values.record(seen));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut line = Seen { name: event.metadata().name(), ..Seen::default() };
        event.record(&mut line);
        let around =
            context.event_scope(event).and_then(|mut scope| scope.find(|span| span.name() == "photo"));
        if let Some(around) = around {
            self.change(&around.id(), |seen| line.photo.clone_from(&seen.photo));
        }
        self.lines.lock().unwrap().push(line);
    }

    fn on_close(&self, id: Id, _context: Context<'_, S>) {
        self.change(&id, |seen| seen.is_over = true);
    }
}

fn names(stages: &[Seen]) -> Vec<&str> {
    stages.iter().map(|stage| stage.field("stage")).collect()
}

#[test]
fn a_photos_span_holds_every_stage_and_how_it_ended() {
    let collector = Collector::get();
    let house = House::build();
    let album = house.album(config());
    let pipeline = house.pipeline(FakeModels::default());
    let whole = jpeg(&scene(3, "417"));
    let torn = whole[..whole.len() / 2].to_vec();
    let photos = house.send(album, &[whole, torn]);
    house.wait_until_settled(album);
    pipeline.stop();

    let (way, stages) = collector.way(photos[0]);
    assert_eq!((way.field("outcome"), way.field("attempt")), ("ready", "1"));
    assert_eq!(way.field("album.id"), album.to_string());
    assert!(way.field("queued_ms").parse::<u64>().is_ok(), "{way:?}");
    assert_eq!(names(&stages), STAGES);
    for stage in &stages {
        assert!(stage.is_over, "{stage:?}");
        assert!(stage.field("batch_size").parse::<usize>().unwrap() >= 1, "{stage:?}");
        assert!(stage.field("wait_ms").parse::<u64>().is_ok(), "{stage:?}");
    }

    let (way, stages) = collector.way(photos[1]);
    assert_eq!(way.field("outcome"), "failed");
    assert_eq!(names(&stages), STAGES[..2]);
    let lines = collector.lines_about(photos[1]);
    assert!(lines.iter().any(|line| line.field("message") == "photo failed"), "{lines:?}");
}

#[test]
fn a_photo_that_is_given_back_has_another_span_the_next_time() {
    let collector = Collector::get();
    let house = House::build();
    let album = house.album(config());
    let slow = FakeModels { delay: Duration::from_millis(400), ..FakeModels::default() };
    let photos = house.send(album, &vec![jpeg(&scene(3, "417")); 12]);
    let pipeline =
        house.pipeline_with(Arc::new(slow), Arc::clone(&house.store.blobs), Duration::from_millis(1));
    wait_for("one that is done", || (house.counts(album).ready > 0).then_some(()));
    assert!(pipeline.stop().given_back > 0);
    let is_returned = |photo: &&PhotoId| {
        let ways = collector.ways(**photo);
        ways.last().is_some_and(|(way, _)| way.is_over && way.field("outcome") == "given_back")
    };
    let returned = *photos.iter().find(is_returned).unwrap();

    let pipeline = house.pipeline(FakeModels::default());
    house.wait_until_settled(album);
    pipeline.stop();
    let ways = collector.ways(returned);
    assert_eq!(ways.len(), 2, "{ways:?}");
    assert_eq!((ways[1].0.field("outcome"), ways[1].0.field("attempt")), ("ready", "1"));
    assert_eq!(names(&ways[1].1), STAGES);
}

#[test]
fn a_selfies_work_is_part_of_the_request_that_brought_it() {
    let collector = Collector::get();
    let house = House::build();
    let desk =
        photofinish_pipeline::ProbeDesk::start(Arc::new(FakeModels::default()), crate::support::LIMITS, 4);
    let request = tracing::info_span!("request", photo.id = "a selfie of this test");
    let selfie = jpeg(&scene(3, "417"));
    house.runtime.block_on(tracing::Instrument::instrument(desk.embed(selfie.into()), request)).unwrap();
    desk.stop();
    let spans = collector.spans.lock().unwrap();
    let ours: Vec<_> =
        spans.iter().filter(|(_, seen)| seen.photo.as_deref() == Some("a selfie of this test")).collect();
    assert_eq!(ours.len(), 2, "{ours:?}");
    assert_eq!((ours[1].1.field("stage"), ours[1].1.is_over), ("probe", true));
}
