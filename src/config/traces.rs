//! Where traces go, under the names that OpenTelemetry gives its settings, so that what injects them into a pod works
//! here unchanged. Headers, time-outs, batch sizes and resource attributes are the exporter's own affair.

use url::Url;

use super::{Config, SettingsParser, read_variables};
use crate::config::redact::redact_url;
use crate::config::settings::Settings;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const TRACES_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
const DISABLED: &str = "OTEL_SDK_DISABLED";

/// Where and how traces are sent.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(feature = "otlp"),
    expect(dead_code, reason = "judged all the same, so that problems are told")
)]
pub struct TraceSettings {
    /// Takes `POST` of OTLP as protobuf.
    pub endpoint: Url,
    pub sampling: Sampling,
    pub service_name: String,
}

/// Which traces are kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// As the caller decided, where a request comes with a trace; `ratio` is for those that begin here.
    pub by_parent: bool,
    /// 0 to 1.
    pub ratio: f64,
}

/// OpenTelemetry's own variables of this process.
pub fn trace_variables() -> Vec<(String, String)> {
    read_variables(|name| name.starts_with("OTEL_"))
}

impl Config {
    /// OpenTelemetry's variables, where traces are sent; secrets masked.
    pub fn trace_lines(&self) -> Vec<(String, String)> {
        if self.traces.is_none() {
            return Vec::new();
        }
        let shown = |(name, value): &(String, String)| {
            let value = match name {
                name if name.ends_with("HEADERS") => "masked".to_owned(),
                name if name.ends_with("ENDPOINT") => redact_url(value),
                _ => value.clone(),
            };
            (name.clone(), value)
        };
        let mut lines: Vec<_> = self.trace_variables.iter().map(shown).collect();
        lines.sort();
        lines
    }
}

impl SettingsParser {
    /// `None` where no endpoint is named.
    pub(super) fn traces(&mut self, given: &Settings) -> Option<TraceSettings> {
        if find_variable(given, DISABLED).is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return None;
        }
        let (name, base) = [TRACES_ENDPOINT, ENDPOINT]
            .into_iter()
            .find_map(|name| find_variable(given, name).map(|value| (name, value)))?;
        if cfg!(not(feature = "otlp")) {
            self.problems.push(format!(
                "{name}: this build sends no traces (it lacks the feature otlp); leave it out"
            ));
        }
        // What is named for traces alone is the whole address.
        let text = if name == ENDPOINT { format!("{}/v1/traces", base.trim_end_matches('/')) } else { base };
        let endpoint = text.parse::<Url>().ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        if endpoint.is_none() {
            self.problems.push(format!("{name}={}: must begin with http:// or https://", redact_url(&text)));
        }
        self.protocol(given);
        let sampling = self.sampling(given);
        let service_name = find_variable(given, SERVICE_NAME).unwrap_or_else(|| "photofinish".to_owned());
        Some(TraceSettings { endpoint: endpoint?, sampling, service_name })
    }

    fn protocol(&mut self, given: &Settings) {
        const ONLY: &str = "http/protobuf";
        let named = [TRACES_PROTOCOL, PROTOCOL]
            .into_iter()
            .find_map(|name| find_variable(given, name).map(|value| (name, value)));
        if let Some((name, protocol)) = named.filter(|(_, protocol)| protocol != ONLY) {
            self.problems.push(format!("{name}={protocol}: must be {ONLY} (port 4318 of a collector)"));
        }
    }

    fn sampling(&mut self, given: &Settings) -> Sampling {
        let argument = find_variable(given, SAMPLER_ARGUMENT);
        let mut ratio: f64 = self.parse(SAMPLER_ARGUMENT, &argument, 1.0);
        if !(0.0..=1.0).contains(&ratio) {
            self.problems.push(format!("{SAMPLER_ARGUMENT}={ratio}: must be from 0 to 1"));
            ratio = 1.0;
        }
        let named = find_variable(given, SAMPLER);
        let sampling = |by_parent, ratio| Sampling { by_parent, ratio };
        let options = [
            ("parentbased_always_on", sampling(true, 1.0)),
            ("parentbased_always_off", sampling(true, 0.0)),
            ("parentbased_traceidratio", sampling(true, ratio)),
            ("always_on", sampling(false, 1.0)),
            ("always_off", sampling(false, 0.0)),
            ("traceidratio", sampling(false, ratio)),
        ];
        self.choice(SAMPLER, &named, &options)
    }
}

/// OpenTelemetry takes an empty variable for one that is not set.
fn find_variable(given: &Settings, name: &str) -> Option<String> {
    let found = given.trace_variables.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.trim().to_owned()).filter(|value| !value.is_empty())
}

#[cfg(test)]
#[cfg(feature = "otlp")]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Settings {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Settings { trace_variables: variables.collect(), ..Settings::default() }
    }

    fn traces(variables: &[(&str, &str)]) -> Option<TraceSettings> {
        Config::from_settings(&with(variables)).unwrap().traces
    }

    fn problems(variables: &[(&str, &str)]) -> Vec<String> {
        Config::from_settings(&with(variables)).unwrap_err().0
    }

    #[test]
    fn without_an_endpoint_nothing_is_sent() {
        assert!(traces(&[]).is_none());
        assert!(traces(&[(ENDPOINT, ""), (SAMPLER, "always_on")]).is_none());
        assert!(traces(&[(ENDPOINT, "http://collector:4318"), (DISABLED, "TRUE")]).is_none());
    }

    #[test]
    fn the_common_endpoint_is_a_base_and_the_traces_endpoint_a_whole_url() {
        let settings = traces(&[(ENDPOINT, "http://collector:4318/")]).unwrap();
        assert_eq!(settings.endpoint.as_str(), "http://collector:4318/v1/traces");
        assert_eq!(settings.sampling, Sampling { by_parent: true, ratio: 1.0 });
        assert_eq!(settings.service_name, "photofinish");
        let both = [(ENDPOINT, "http://other:4318"), (TRACES_ENDPOINT, "https://vendor/ingest?v=2")];
        assert_eq!(traces(&both).unwrap().endpoint.as_str(), "https://vendor/ingest?v=2");
    }

    #[test]
    fn samplers_have_the_names_that_opentelemetry_gives_them() {
        let sampled = |sampler, argument| {
            let endpoint = (ENDPOINT, "http://collector:4318");
            traces(&[endpoint, (SAMPLER, sampler), (SAMPLER_ARGUMENT, argument)]).unwrap().sampling
        };
        assert_eq!(sampled("parentbased_traceidratio", "0.25"), Sampling { by_parent: true, ratio: 0.25 });
        assert_eq!(sampled("traceidratio", "0.5"), Sampling { by_parent: false, ratio: 0.5 });
        assert_eq!(sampled("always_off", "0.5"), Sampling { by_parent: false, ratio: 0.0 });
    }

    #[test]
    fn problems_with_trace_settings_show_no_secrets() {
        let told = problems(&[
            (ENDPOINT, "grpc://user:secret@collector:4317"),
            (PROTOCOL, "grpc"),
            (SAMPLER, "sometimes"),
            (SAMPLER_ARGUMENT, "7"),
        ]);
        assert_eq!(told.len(), 4, "{told:?}");
        assert!(!told.concat().contains("secret"), "{told:?}");
    }

    #[test]
    fn headers_are_not_shown() {
        let given = with(&[
            (ENDPOINT, "http://user:secret@collector:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret"),
        ]);
        let lines = Config::from_settings(&given).unwrap().trace_lines();
        assert!(lines.len() == 2 && lines.iter().all(|(_, value)| !value.contains("secret")), "{lines:?}");
    }
}

#[cfg(test)]
#[cfg(not(feature = "otlp"))]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_without_the_otlp_feature_is_a_problem() {
        let variables = vec![(ENDPOINT.to_owned(), "http://collector:4318".to_owned())];
        let given = Settings { trace_variables: read_variables, ..Settings::default() };
        assert_eq!(Config::from_settings(&given).unwrap_err().0.len(), 1);
    }
}
