//! How CPU is measured, and what the service says of it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use photofinish_client::Client;
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::paths::InputPaths;
use crate::report::OutputOptions;
use crate::service::Setup;

/// Options of the measurement.
#[derive(Clone, Debug, clap::Args)]
pub struct CpuOptions {
    /// Camera-size photos with `truth.csv` beside them; made by `make-24mp` when absent.
    #[arg(long, value_name = "DIR")]
    pub photos: Option<PathBuf>,
    /// Frames composed of so many of the labelled photos, 4, 9 or 16, instead of camera-size photos.
    #[arg(long, value_name = "PHOTOS", value_parser = ["4", "9", "16"], conflicts_with = "photos")]
    pub crowds: Option<String>,
    /// `avx512` is a CPU without bf16, AMX and VNNI: every network computes in f32.
    #[arg(long, value_enum, default_value_t = Cpu::Native)]
    pub cpu: Cpu,
    /// Decode workers of Photofinish, threads of the peer.
    #[arg(long, default_value_t = 2)]
    pub threads: usize,
    /// Runs of each of the three.
    #[arg(long, default_value_t = 2)]
    pub rounds: usize,
    /// Runs Photofinish only.
    #[arg(long)]
    pub alone: bool,
    /// Locations of the inputs.
    #[command(flatten)]
    pub paths: InputPaths,
    /// Where to save the report.
    #[command(flatten)]
    pub output: OutputOptions,
}

/// What Photofinish may use of this machine's CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Cpu {
    /// All of it.
    Native,
    /// No bf16, no AMX and no VNNI: f32.
    Avx512,
}

/// How the service is started.
pub(super) fn service_setup(options: &CpuOptions) -> Setup {
    let settings = match options.cpu {
        Cpu::Native => Vec::new(),
        Cpu::Avx512 => vec![("PHOTOFINISH_TEXT_PRECISION".to_owned(), "f32".to_owned())],
    };
    Setup { threads: Some(options.threads), settings, ..Setup::default() }
}

/// CPU seconds that the photos of an album were charged, by stage.
pub(super) fn read_charged(client: &Client, album: &str) -> anyhow::Result<BTreeMap<String, f64>> {
    let today = OffsetDateTime::now_utc().date();
    // Midnight may have passed since the first photo.
    let from = today.previous_day().context("a day before")?;
    let request = json!({ "from": from.to_string(), "to": today.to_string(), "albumId": album });
    let report: Value = client.call("usage/costs", &request)?;
    let rows = report["rows"].as_array().context("rows of costs")?;
    let of_row = |row: &Value| Some((row["stage"].as_str()?.to_owned(), row["cpuSeconds"].as_f64()?));
    rows.iter().map(|row| of_row(row).with_context(|| format!("{row} is no row of costs"))).collect()
}
