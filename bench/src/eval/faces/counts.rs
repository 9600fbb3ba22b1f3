//! Counts right and wrong hits by threshold, as means over the jitters of the probes.

use std::collections::BTreeMap;

use super::searches::ProbeSearch;
use crate::photos::score::ratio;
use crate::report::Table;
use crate::report::statistics::{Estimate, estimate_mean};

/// Confidences to tabulate.
const THRESHOLDS: [f64; 9] = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0];

/// Ranges of confidence to compare with the part of right hits.
const CONFIDENCE_RANGES: [[f64; 2]; 6] =
    [[5.0, 20.0], [20.0, 40.0], [40.0, 60.0], [60.0, 80.0], [80.0, 95.0], [95.0, 100.1]];

/// Some people in some album.
pub struct Setting {
    /// Who, and where.
    pub name: String,
    /// The searches of each jitter.
    pub by_seed: Vec<Vec<ProbeSearch>>,
}

/// Counts over all probes at a threshold.
#[derive(Clone, Copy, Default)]
struct HitCount {
    probes: usize,
    found: usize,
    missed: usize,
    wrong: usize,
}

impl HitCount {
    fn recall(&self) -> f64 {
        ratio(self.found, self.found + self.missed)
    }

    fn strangers(&self) -> f64 {
        ratio(self.wrong, self.probes)
    }

    fn right_part(&self) -> f64 {
        ratio(self.found, self.found + self.wrong)
    }
}

fn count_hits(searches: &[ProbeSearch], threshold: f64) -> HitCount {
    let mut count = HitCount { probes: searches.len(), ..HitCount::default() };
    for search in searches {
        let above = || search.hits.iter().filter(|(_, confidence)| *confidence >= threshold);
        let found = above().filter(|(file, _)| search.right.contains(file)).count();
        count.found += found;
        count.missed += search.right.len() - found;
        count.wrong += above().filter(|(file, _)| search.is_wrong(file)).count();
    }
    count
}

/// Returns the part of the probes whose best hit shows the right person; `strict` counts labels alone.
fn rank_one_rate(searches: &[ProbeSearch], strict: bool) -> f64 {
    let is_right = |search: &&ProbeSearch| {
        let Some((file, _)) = search.hits.first() else { return false };
        if strict { search.right.contains(file) } else { !search.is_wrong(file) }
    };
    ratio(searches.iter().filter(is_right).count(), searches.len())
}

impl Setting {
    /// Joins the searches of several events, jitter by jitter.
    pub fn join(name: &str, settings: &[&Self]) -> Self {
        let mut by_seed: Vec<Vec<ProbeSearch>> = Vec::new();
        for setting in settings {
            by_seed.resize_with(setting.by_seed.len(), Vec::new);
            for (all, searches) in by_seed.iter_mut().zip(&setting.by_seed) {
                all.extend(searches.iter().cloned());
            }
        }
        Self { name: name.to_owned(), by_seed }
    }

    fn estimate(&self, figure: impl Fn(&[ProbeSearch]) -> f64) -> Estimate {
        estimate_mean(&self.by_seed.iter().map(|searches| figure(searches)).collect::<Vec<f64>>())
    }

    /// The part of the right photos that is found at a threshold.
    pub fn recall(&self, threshold: f64) -> Estimate {
        self.estimate(|searches| count_hits(searches, threshold).recall())
    }

    /// Wrong hits of a search at a threshold.
    pub fn strangers(&self, threshold: f64) -> Estimate {
        self.estimate(|searches| count_hits(searches, threshold).strangers())
    }

    /// The part of the hits that is right at a threshold.
    pub fn right_part(&self, threshold: f64) -> Estimate {
        self.estimate(|searches| count_hits(searches, threshold).right_part())
    }

    /// The part of the probes whose best hit shows the right person.
    pub fn rank_one(&self) -> Estimate {
        self.estimate(|searches| rank_one_rate(searches, false))
    }

    fn probes(&self) -> usize {
        self.by_seed.first().map_or(0, Vec::len)
    }
}

/// One row for each setting, at the default threshold.
pub fn summary_table(settings: &[&Setting], threshold: f64) -> Table {
    let columns = [
        "probes",
        "without a face",
        "rank 1",
        "by labels alone",
        "recall",
        "strangers a search",
        "right of hits",
    ];
    let mut table = Table::new(&format!("At the default threshold of {threshold}"), &columns);
    for setting in settings {
        let without_face =
            |searches: &[ProbeSearch]| searches.iter().filter(|search| search.hits.is_empty()).count() as f64;
        table.add_row([
            format!("{}: {}", setting.name, setting.probes()),
            format!("{:.1}", setting.estimate(without_face).mean),
            setting.rank_one().to_string(),
            setting.estimate(|searches| rank_one_rate(searches, true)).to_string(),
            setting.recall(threshold).to_string(),
            setting.strangers(threshold).to_string(),
            setting.right_part(threshold).to_string(),
        ]);
    }
    table
}

/// What each threshold gives.
pub fn threshold_table(setting: &Setting) -> Table {
    let columns = ["confidence", "recall", "strangers a search", "right of hits"];
    let mut table = Table::new(&format!("What a threshold gives: {}", setting.name), &columns);
    for threshold in THRESHOLDS {
        table.add_row([
            format!("{threshold:.0}"),
            setting.recall(threshold).to_string(),
            setting.strangers(threshold).to_string(),
            setting.right_part(threshold).to_string(),
        ]);
    }
    table
}

/// Compares confidences with the part of right hits, over all jitters.
pub fn reliability_table(setting: &Setting) -> Table {
    let columns = ["confidence", "mean", "right of hits", "hits: right", "wrong"];
    let mut table = Table::new(&format!("Does the confidence hold: {}", setting.name), &columns);
    for [from, to] in CONFIDENCE_RANGES {
        let (mut right, mut wrong, mut sum) = (0, 0, 0.0);
        for search in setting.by_seed.iter().flatten() {
            for (file, confidence) in &search.hits {
                if (from..to).contains(confidence) && !search.unlabelled.contains(file) {
                    sum += confidence;
                    let is_right = search.right.contains(file);
                    right += usize::from(is_right);
                    wrong += usize::from(!is_right);
                }
            }
        }
        table.add_row([
            format!("{from:.0} to {:.0}", to.min(100.0)),
            format!("{:.0}", sum / (right + wrong) as f64),
            format!("{:.0} %", 100.0 * ratio(right, right + wrong)),
            right.to_string(),
            wrong.to_string(),
        ]);
    }
    table
}

/// Lists the wrong hits and missed photos of the first jitter at a threshold.
pub fn list_errors(setting: &Setting, threshold: f64) -> Vec<String> {
    let mut lines = Vec::new();
    for search in setting.by_seed.first().into_iter().flatten() {
        let confidences: BTreeMap<&str, f64> =
            search.hits.iter().map(|(file, c)| (file.as_str(), *c)).collect();
        for (file, confidence) in &search.hits {
            if *confidence >= threshold && search.is_wrong(file) {
                let name = &search.name;
                lines.push(format!("wrong   {}, {name}: {file} at {confidence:.1}", setting.name));
            }
        }
        for file in &search.right {
            let confidence = confidences.get(file.as_str()).copied();
            if confidence.is_none_or(|confidence| confidence < threshold) {
                let how = confidence.map_or_else(|| "no face indexed".to_owned(), |c| format!("at {c:.1}"));
                lines.push(format!("missed  {}, {}: {file} {how}", setting.name, search.name));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn files(files: &[&str]) -> BTreeSet<String> {
        files.iter().map(|&file| file.to_owned()).collect()
    }

    fn search(right: &[&str], unlabelled: &[&str], hits: &[(&str, f64)]) -> ProbeSearch {
        ProbeSearch {
            name: String::new(),
            right: files(right),
            unlabelled: files(unlabelled),
            hits: hits.iter().map(|&(file, confidence)| (file.to_owned(), confidence)).collect(),
        }
    }

    #[test]
    fn hits_are_counted_at_a_threshold() {
        let hits = [("a", 90.0), ("x", 60.0), ("b", 40.0)];
        let searches = [search(&["a", "b"], &[], &hits), search(&["c"], &[], &[])];
        let count = count_hits(&searches, 50.0);
        assert_eq!((count.found, count.missed, count.wrong), (1, 2, 1));
        assert_eq!((count.strangers(), count.right_part()), (0.5, 0.5));
        assert_eq!(rank_one_rate(&searches, true), 0.5);
    }

    #[test]
    fn a_photo_known_to_show_the_runner_is_right_when_found_and_not_missed_otherwise() {
        let searches = [search(&["a"], &["u"], &[("u", 90.0)]), search(&["a"], &["u"], &[("a", 80.0)])];
        let count = count_hits(&searches, 50.0);
        assert_eq!((count.found, count.missed, count.wrong), (1, 1, 0));
        assert_eq!((rank_one_rate(&searches, false), rank_one_rate(&searches, true)), (1.0, 0.5));
    }

    #[test]
    fn events_are_joined_jitter_by_jitter() {
        let found = search(&["a"], &[], &[("a", 90.0)]);
        let missed = search(&["a"], &[], &[]);
        let one = Setting { name: String::new(), by_seed: vec![vec![found.clone()], vec![missed.clone()]] };
        let other = Setting { name: String::new(), by_seed: vec![vec![found.clone()], vec![found]] };
        let joined = Setting::join("both", &[&one, &other]);
        assert_eq!(joined.probes(), 2);
        let recalls: Vec<f64> =
            joined.by_seed.iter().map(|searches| count_hits(searches, 50.0).recall()).collect();
        assert_eq!(recalls, [1.0, 0.5]);
    }
}
