//! The progress of an album as it happens: the Server-Sent Events of `albums/progress`.

use std::io::{BufRead, BufReader, Read};

use serde_json::json;

use crate::client::{Client, check_status};
use crate::error::ClientError;
use crate::raw::read_response;
use crate::types::Progress;

const OPERATION: &str = "albums/progress";

/// Each progress that the service sends, until the album is idle. A stream that ends in another way (the album is deleted,
/// the service stops, the connection breaks) ends with an error.
pub struct ProgressStream {
    lines: BufReader<Box<dyn Read + Send>>,
    has_ended: bool,
}

/// One event: its name and its data, which is JSON.
#[derive(Debug, PartialEq, Eq)]
struct Event {
    name: String,
    data: String,
}

impl Client {
    /// Streams the progress of an album, without a limit of time.
    ///
    /// # Errors
    /// As [`Client::call`], before the stream begins; it is not tried again.
    pub fn stream_progress(&self, album: &str) -> Result<ProgressStream, ClientError> {
        let url = format!("{}/openapi/{OPERATION}", self.origin());
        let request = self.agent().post(url).header("x-api-key", self.key());
        let request = request.header("accept", "text/event-stream");
        let request = request.config().timeout_global(None).build();
        let response = request.send_json(json!({ "albumId": album }));
        let response = response.map_err(|error| ClientError::transport(OPERATION, error))?;
        if response.status() != 200 {
            check_status(OPERATION, read_response(OPERATION, response)?)?;
            return Err(interrupted("no stream"));
        }
        Ok(ProgressStream::new(response.into_body().into_reader()))
    }
}

impl ProgressStream {
    fn new(body: impl Read + Send + 'static) -> Self {
        Self { lines: BufReader::new(Box::new(body)), has_ended: false }
    }

    /// The next event; `None` at the end of the stream.
    fn next_event(&mut self) -> std::io::Result<Option<Event>> {
        let mut event = Event { name: "message".to_owned(), data: String::new() };
        let mut line = String::new();
        loop {
            line.clear();
            if self.lines.read_line(&mut line)? == 0 {
                return Ok(None);
            }
            let text = line.trim_end();
            if let Some(name) = text.strip_prefix("event:") {
                event.name = name.trim().to_owned();
            } else if let Some(data) = text.strip_prefix("data:") {
                event.data.push_str(data.trim());
            } else if text.is_empty() && !(event.data.is_empty() && event.name == "message") {
                return Ok(Some(event));
            }
        }
    }
}

impl Iterator for ProgressStream {
    type Item = Result<Progress, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let item = match self.next_event() {
            Ok(Some(event)) if event.name == "message" => {
                Some(serde_json::from_str(&event.data).map_err(|error| interrupted(&error.to_string())))
            }
            Ok(Some(event)) if event.name == "done" => None,
            Ok(Some(event)) => Some(Err(interrupted(&event.data))),
            Ok(None) => Some(Err(interrupted("the stream ended before the album was idle"))),
            Err(error) => Some(Err(ClientError::transport(OPERATION, error.into()))),
        };
        self.has_ended = !matches!(item, Some(Ok(_)));
        item
    }
}

fn interrupted(reason: &str) -> ClientError {
    ClientError::InvalidResponse { operation: OPERATION.to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready_counts(stream: &'static str) -> Vec<Option<u64>> {
        ProgressStream::new(stream.as_bytes()).map(|item| item.ok().map(|progress| progress.ready)).collect()
    }

    #[test]
    fn a_stream_is_read_until_it_is_done() {
        let stream = ": comment\n\nevent: message\ndata: {\"ready\": 1}\n\ndata: {\"ready\":\ndata: 2}\n\n\
                      event: done\ndata: {}\n\ndata: {\"ready\": 3}\n\n";
        assert_eq!(ready_counts(stream), [Some(1), Some(2)]);
    }

    #[test]
    fn a_stream_that_breaks_off_or_names_an_error_ends_with_an_error() {
        assert_eq!(ready_counts("data: {\"ready\": 1}\n\ndata: {"), [Some(1), None]);
        assert_eq!(ready_counts("event: error\ndata: {}\n\ndata: {\"ready\": 1}\n\n"), [None]);
    }
}
