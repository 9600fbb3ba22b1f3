//! Settings of traces, under the names that OpenTelemetry gives them, so that whatever injects them into a pod works
//! unchanged. Headers, timeouts, batch sizes and resource attributes are read by the exporter itself.

use std::fmt;

use url::Url;

use super::redact::redact_url;
use super::variables::read_variables;

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
const PROTOCOL: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
const TRACES_PROTOCOL: &str = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL";
const SAMPLER: &str = "OTEL_TRACES_SAMPLER";
const SAMPLER_ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";
const SERVICE_NAME: &str = "OTEL_SERVICE_NAME";
const DISABLED: &str = "OTEL_SDK_DISABLED";

/// The only protocol of the exporter.
const HTTP_PROTOBUF: &str = "http/protobuf";

/// Where and how traces are exported.
#[derive(Clone, Debug)]
#[cfg_attr(
    not(feature = "otlp"),
    expect(dead_code, reason = "checked in every build, so that problems are reported")
)]
pub struct TraceSettings {
    /// Accepts `POST` of OTLP as protobuf.
    pub endpoint: Url,
    pub sampling: Sampling,
    pub service_name: String,
}

/// Which traces are exported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Whether a request that belongs to a trace is sampled as its caller decided; `ratio` is for other requests.
    pub by_parent: bool,
    /// 0 to 1.
    pub ratio: f64,
}

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parent = if self.by_parent { "by parent, else " } else { "" };
        write!(f, "{parent}ratio {}", self.ratio)
    }
}

/// Reads OpenTelemetry's own variables.
pub fn trace_variables() -> Vec<(String, String)> {
    read_variables(|name| name.starts_with("OTEL_"))
}

/// OpenTelemetry's variables, secrets redacted.
pub fn redacted_variables(variables: &[(String, String)]) -> Vec<(String, String)> {
    let redact = |(name, value): &(String, String)| {
        let value = match name {
            name if name.ends_with("HEADERS") => "masked".to_owned(),
            name if name.ends_with("ENDPOINT") => redact_url(value),
            _ => value.clone(),
        };
        (name.clone(), value)
    };
    let mut lines: Vec<_> = variables.iter().map(redact).collect();
    lines.sort();
    lines
}

/// The settings of traces; `None` where no endpoint is set, or tracing is disabled.
pub fn trace_settings(variables: &[(String, String)], problems: &mut Vec<String>) -> Option<TraceSettings> {
    if find_variable(variables, DISABLED).is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return None;
    }
    let (name, base) = find_first(variables, [TRACES_ENDPOINT, ENDPOINT])?;
    if cfg!(not(feature = "otlp")) {
        problems.push(format!(
            "{name}: must be left out: this build exports no traces (it lacks the feature otlp)"
        ));
    }
    // The endpoint of traces is a whole URL, the common one is a base.
    let text = if name == ENDPOINT { format!("{}/v1/traces", base.trim_end_matches('/')) } else { base };
    let endpoint = text.parse::<Url>().ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    if endpoint.is_none() {
        problems.push(format!("{name}={}: must begin with http:// or https://", redact_url(&text)));
    }
    if let Some((name, protocol)) = find_first(variables, [TRACES_PROTOCOL, PROTOCOL])
        && protocol != HTTP_PROTOBUF
    {
        problems.push(format!("{name}={protocol}: must be {HTTP_PROTOBUF} (port 4318 of a collector)"));
    }
    let sampling = sampling(variables, problems);
    let service_name = find_variable(variables, SERVICE_NAME).unwrap_or_else(|| "photofinish".to_owned());
    Some(TraceSettings { endpoint: endpoint?, sampling, service_name })
}

fn sampling(variables: &[(String, String)], problems: &mut Vec<String>) -> Sampling {
    let argument = find_variable(variables, SAMPLER_ARGUMENT);
    let parsed = argument.as_deref().map_or(Ok(1.0), str::parse);
    let ratio = parsed.ok().filter(|ratio| (0.0..=1.0).contains(ratio)).unwrap_or_else(|| {
        let given = argument.unwrap_or_default();
        problems.push(format!("{SAMPLER_ARGUMENT}={given}: must be a number from 0 to 1"));
        1.0
    });
    let samplers = [
        ("parentbased_always_on", Sampling { by_parent: true, ratio: 1.0 }),
        ("parentbased_always_off", Sampling { by_parent: true, ratio: 0.0 }),
        ("parentbased_traceidratio", Sampling { by_parent: true, ratio }),
        ("always_on", Sampling { by_parent: false, ratio: 1.0 }),
        ("always_off", Sampling { by_parent: false, ratio: 0.0 }),
        ("traceidratio", Sampling { by_parent: false, ratio }),
    ];
    let (default, _) = samplers[0];
    let given = find_variable(variables, SAMPLER).unwrap_or_else(|| default.to_owned());
    let found = samplers.iter().find(|(name, _)| *name == given);
    found.map(|(_, sampling)| *sampling).unwrap_or_else(|| {
        let names = samplers.map(|(name, _)| name).join(", ");
        problems.push(format!("{SAMPLER}={given}: must be one of {names}"));
        samplers[0].1
    })
}

/// The first of `names` that is set, with its value.
fn find_first(variables: &[(String, String)], names: [&'static str; 2]) -> Option<(&'static str, String)> {
    names.into_iter().find_map(|name| find_variable(variables, name).map(|value| (name, value)))
}

/// The value of a variable. OpenTelemetry treats an empty variable as one that is not set.
fn find_variable(variables: &[(String, String)], name: &str) -> Option<String> {
    let found = variables.iter().find(|(known, _)| known == name);
    found.map(|(_, value)| value.trim().to_owned()).filter(|value| !value.is_empty())
}

#[cfg(test)]
#[cfg(feature = "otlp")]
mod tests {
    use super::*;
    use crate::config::tests::config_with;

    fn traces(variables: &[(&str, &str)]) -> Option<TraceSettings> {
        config_with::<&str>(&[], &[], variables).unwrap().traces
    }

    fn problems(variables: &[(&str, &str)]) -> Vec<String> {
        config_with::<&str>(&[], &[], variables).unwrap_err().0
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
        let problems = problems(&[
            (ENDPOINT, "grpc://user:secret@collector:4317"),
            (PROTOCOL, "grpc"),
            (SAMPLER, "sometimes"),
            (SAMPLER_ARGUMENT, "7"),
        ]);
        assert_eq!(problems.len(), 4, "{problems:?}");
        assert!(!problems.concat().contains("secret"), "{problems:?}");
    }

    #[test]
    fn headers_are_not_shown() {
        let variables = [
            (ENDPOINT, "http://user:secret@collector:4318"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=secret"),
        ];
        let lines = config_with::<&str>(&[], &[], &variables).unwrap().trace_lines();
        assert!(lines.len() == 2 && lines.iter().all(|(_, value)| !value.contains("secret")), "{lines:?}");
    }
}

#[cfg(test)]
#[cfg(not(feature = "otlp"))]
mod tests {
    use super::*;
    use crate::config::tests::config_with;

    #[test]
    fn an_endpoint_without_the_otlp_feature_is_a_problem() {
        let endpoint = [(ENDPOINT, "http://collector:4318")];
        assert_eq!(config_with::<&str>(&[], &[], &endpoint).unwrap_err().0.len(), 1);
    }
}
