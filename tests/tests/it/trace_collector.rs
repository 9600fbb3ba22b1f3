//! A trace collector: accepts OTLP over HTTP as a real one does, and records the spans.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

/// A span as it was received.
#[derive(Clone, Debug)]
pub struct ReceivedSpan {
    pub span: Span,
    pub fields: HashMap<String, String>,
    pub resource: HashMap<String, String>,
    /// The headers of its request, names in lower case.
    pub headers: HashMap<String, String>,
}

impl ReceivedSpan {
    pub fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

/// A collector that listens until the test process ends.
pub struct Collector(Arc<Mutex<Vec<ReceivedSpan>>>);

impl Collector {
    /// Listens on a port of this machine.
    pub fn listen(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
        let spans: Arc<Mutex<Vec<ReceivedSpan>>> = Arc::default();
        let (kept, name) = (Arc::clone(&spans), format!("collector-{port}"));
        let accept = move || {
            for connection in listener.incoming().flatten() {
                let spans = Arc::clone(&kept);
                let serve = move || serve(connection, &spans);
                std::thread::Builder::new().spawn(serve).expect("a thread");
            }
        };
        std::thread::Builder::new().name(name).spawn(accept).expect("a thread");
        Self(spans)
    }

    /// Every span so far.
    pub fn spans(&self) -> Vec<ReceivedSpan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The spans of this name with a field of this value.
    pub fn find(&self, name: &str, field: &str, value: &str) -> Vec<ReceivedSpan> {
        let is_wanted = |sent: &ReceivedSpan| sent.span.name == name && sent.field(field) == value;
        self.spans().into_iter().filter(is_wanted).collect()
    }

    /// The spans whose parent this one is, in the order in which they began.
    pub fn children(&self, parent: &ReceivedSpan) -> Vec<ReceivedSpan> {
        let is_child = |sent: &ReceivedSpan| {
            sent.span.parent_span_id == parent.span.span_id && sent.span.trace_id == parent.span.trace_id
        };
        let mut children: Vec<ReceivedSpan> = self.spans().into_iter().filter(is_child).collect();
        children.sort_by_key(|child| child.span.start_time_unix_nano);
        children
    }
}

/// Serves one request after the other until the connection ends.
fn serve(connection: TcpStream, spans: &Mutex<Vec<ReceivedSpan>>) {
    let mut reader = BufReader::new(connection.try_clone().expect("a second handle"));
    let mut writer = connection;
    while let Some((headers, body)) = request(&mut reader) {
        let sent = ExportTraceServiceRequest::decode(&body[..]).expect("spans as protobuf");
        spans.lock().unwrap_or_else(PoisonError::into_inner).extend(unpack(sent, &headers));
        let response =
            b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
        if writer.write_all(response).is_err() {
            return;
        }
    }
}

/// Headers and body; `None` at the end of the connection.
fn request(reader: &mut impl BufRead) -> Option<(HashMap<String, String>, Vec<u8>)> {
    let mut line = String::new();
    if reader.read_line(&mut line).ok()? == 0 {
        return None;
    }
    assert_eq!(line.trim_end(), "POST /v1/traces HTTP/1.1");
    let mut headers = HashMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let mut body = vec![0; headers["content-length"].parse().expect("a length")];
    reader.read_exact(&mut body).ok()?;
    Some((headers, body))
}

fn unpack(sent: ExportTraceServiceRequest, headers: &HashMap<String, String>) -> Vec<ReceivedSpan> {
    let mut spans = Vec::new();
    for of_resource in sent.resource_spans {
        let resource = fields(&of_resource.resource.expect("says who sends").attributes);
        for span in of_resource.scope_spans.into_iter().flat_map(|of_scope| of_scope.spans) {
            let (fields, resource, headers) = (fields(&span.attributes), resource.clone(), headers.clone());
            spans.push(ReceivedSpan { span, fields, resource, headers });
        }
    }
    spans
}

fn fields(attributes: &[KeyValue]) -> HashMap<String, String> {
    let shown = |attribute: &KeyValue| match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    attributes.iter().map(|attribute| (attribute.key.clone(), shown(attribute))).collect()
}
