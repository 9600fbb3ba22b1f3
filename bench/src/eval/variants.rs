//! The variants of the service that an evaluation compares: each its own process, which reads the same photos in turn.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::path::Path;
use std::time::Duration;

use photofinish_client::Client;

use super::options::BibOptions;
use crate::process::{process_tree_cpu, read_memory};
use crate::prometheus::sum_metric_by_label;
use crate::report::Table;
use crate::report::statistics::to_milliseconds;
use crate::service::album::UploadedAlbum;
use crate::service::{Service, Setup};

/// Stages whose CPU time is shown.
const SHOWN_STAGES: [&str; 4] = ["decode", "detect", "embed", "read"];

/// A running variant.
pub struct Variant {
    /// What makes it different.
    pub name: String,
    service: Service,
}

/// CPU time of reading photos, from their confirmation until their album is idle.
#[derive(Clone, Debug, Default)]
pub struct Cost {
    photos: usize,
    cpu: Duration,
    /// Seconds by stage.
    stages: BTreeMap<String, f64>,
}

impl AddAssign<&Self> for Cost {
    fn add_assign(&mut self, other: &Self) {
        self.photos += other.photos;
        self.cpu += other.cpu;
        for (stage, seconds) in &other.stages {
            *self.stages.entry(stage.clone()).or_default() += seconds;
        }
    }
}

impl Variant {
    /// Starts the variants of a run: the service as configured, and what it is compared with.
    ///
    /// # Errors
    /// When a service does not start.
    pub fn start_all(options: &BibOptions) -> anyhow::Result<Vec<Self>> {
        let (paths, comparison) = (&options.common.paths, &options.comparison);
        let mut variants =
            vec![Self { name: "this".to_owned(), service: Service::start(paths, &Setup::default())? }];
        let mut parts: Vec<String> = comparison.against.iter().map(ToString::to_string).collect();
        let mut paths = paths.clone();
        if let Some(binary) = &comparison.against_binary {
            let name = binary.file_name().unwrap_or_default();
            parts.push(format!("binary {}", name.to_string_lossy()));
            paths.binary = Some(binary.clone());
        }
        if !parts.is_empty() {
            let settings = comparison.against.iter().map(|one| (one.name.clone(), one.value.clone()));
            let setup = Setup { settings: settings.collect(), ..Setup::default() };
            variants.push(Self { name: parts.join(", "), service: Service::start(&paths, &setup)? });
        }
        Ok(variants)
    }

    /// The client of a partner.
    pub fn client(&self) -> &Client {
        self.service.client()
    }

    /// Reads files below `folder` into a new album.
    ///
    /// # Errors
    /// When the service returns an error or a photo failed.
    pub fn read(&self, folder: &Path, files: &[String]) -> anyhow::Result<(UploadedAlbum, Cost)> {
        let album = UploadedAlbum::upload(self.client(), None, folder, files)?;
        let before = (process_tree_cpu(self.service.pid())?, self.stage_seconds()?);
        album.confirm_all(self.client())?;
        let progress = album.wait_until_idle(self.client())?;
        anyhow::ensure!(progress.failed == 0, "{} of {} photos failed", progress.failed, files.len());
        let cpu = process_tree_cpu(self.service.pid())?.saturating_sub(before.0);
        let mut stages = self.stage_seconds()?;
        for (stage, seconds) in &mut stages {
            *seconds -= before.1.get(stage).copied().unwrap_or_default();
        }
        Ok((album, Cost { photos: files.len(), cpu, stages }))
    }

    fn stage_seconds(&self) -> anyhow::Result<BTreeMap<String, f64>> {
        let page = self.service.read_metrics()?;
        Ok(sum_metric_by_label(&page, "photofinish_stage_cpu_seconds_total", "stage"))
    }

    /// The most memory of the process so far.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn peak_megabytes(&self) -> anyhow::Result<f64> {
        Ok(read_memory(self.service.pid())?.peak as f64 / 1e6)
    }
}

/// The table of costs, to be filled by [`add_cost_row`].
pub fn new_cost_table() -> Table {
    let columns = ["photos", "variant", "CPU ms a photo"].into_iter();
    let columns: Vec<&str> = columns.chain(SHOWN_STAGES).chain(["peak MB so far"]).collect();
    Table::new(
        "CPU of the whole process and of its stages, ms a photo, storage and database included.",
        &columns,
    )
}

/// Adds what a variant took for some photos.
pub fn add_cost_row(table: &mut Table, photos: &str, variant: &str, cost: &Cost, peak_megabytes: f64) {
    let per_photo = |milliseconds: f64| format!("{:.1}", milliseconds / cost.photos.max(1) as f64);
    let mut row = vec![photos.to_owned(), variant.to_owned(), per_photo(to_milliseconds(cost.cpu))];
    row.extend(
        SHOWN_STAGES.map(|stage| per_photo(1e3 * cost.stages.get(stage).copied().unwrap_or_default())),
    );
    row.push(format!("{peak_megabytes:.0}"));
    table.add_row(row);
}
