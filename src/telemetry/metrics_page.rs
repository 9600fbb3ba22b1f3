//! Renders the page of metrics that Prometheus scrapes.

use metrics_exporter_prometheus::PrometheusHandle;

/// Renders all metrics in the text format of Prometheus.
///
/// The `metrics` crate counts only in integers, so counters of fractional seconds are recorded as gauges that only grow.
/// Their names end in `_total`, and the page declares every metric with such a name as a counter.
pub fn render(metrics: &PrometheusHandle) -> String {
    declare_counters(&metrics.render())
}

fn declare_counters(page: &str) -> String {
    let mut declared = String::with_capacity(page.len());
    for line in page.lines() {
        match line.strip_suffix("_total gauge") {
            Some(start) if line.starts_with("# TYPE ") => {
                declared.push_str(start);
                declared.push_str("_total counter");
            }
            _ => declared.push_str(line),
        }
        declared.push('\n');
    }
    declared
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_gauges_named_total_are_declared_as_counters() {
        let page = "# HELP busy_seconds_total Seconds, not a_total gauge\n\
                    # TYPE busy_seconds_total gauge\n\
                    busy_seconds_total{stage=\"read\"} 0.25\n\
                    \n\
                    # TYPE depth gauge\n\
                    depth 3\n";
        let declared = declare_counters(page);
        assert_eq!(declared, page.replace("busy_seconds_total gauge\n", "busy_seconds_total counter\n"));
    }
}
