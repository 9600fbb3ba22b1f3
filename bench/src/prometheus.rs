//! Reads sums of metrics from a page in the Prometheus text format.

use std::collections::BTreeMap;

/// The sum of a metric over all its labels; `None` when it is not on the page.
pub fn sum_metric(page: &str, metric: &str) -> Option<f64> {
    samples(page, metric).map(|(_, value)| value).reduce(|sum, value| sum + value)
}

/// The sums of a metric by the value of one label.
pub fn sum_metric_by_label(page: &str, metric: &str, label: &str) -> BTreeMap<String, f64> {
    let start = format!("{label}=\"");
    let mut sums = BTreeMap::new();
    for (labels, value) in samples(page, metric) {
        let name = labels.split_once(&start).and_then(|(_, rest)| rest.split_once('"'));
        if let Some((name, _)) = name {
            *sums.entry(name.to_owned()).or_default() += value;
        }
    }
    sums
}

/// The samples of a metric: labels, in braces or empty, and value. Metrics whose name is longer are others.
fn samples<'a>(page: &'a str, metric: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
    page.lines().filter_map(move |line| {
        let rest = line.strip_prefix(metric).filter(|rest| rest.starts_with([' ', '{']))?;
        let (labels, value) = rest.rsplit_once(' ')?;
        Some((labels, value.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# HELP stage_seconds x\nstage_seconds{stage=\"decode\",part=\"a\"} 1.5\n\
                        stage_seconds{part=\"b c\",stage=\"decode\"} 2\nstage_seconds{stage=\"read\"} 4e-1\n\
                        stage_seconds_total{stage=\"read\"} 9\nphotos 1\n";

    #[test]
    fn metrics_are_summed_by_label_and_longer_names_are_others() {
        let sums: Vec<_> = sum_metric_by_label(PAGE, "stage_seconds", "stage").into_iter().collect();
        assert_eq!(sums, [("decode".to_owned(), 3.5), ("read".to_owned(), 0.4)]);
    }

    #[test]
    fn a_metric_is_summed_over_its_labels() {
        assert_eq!(sum_metric(PAGE, "stage_seconds"), Some(3.9));
        assert_eq!(sum_metric(PAGE, "photos"), Some(1.0));
        assert_eq!(sum_metric(PAGE, "stage"), None);
    }
}
