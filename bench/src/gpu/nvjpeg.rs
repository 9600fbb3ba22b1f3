//! How fast nvJPEG would decode the photos of a measurement: `bench/peers/nvjpeg.py`. The service decodes them on the cores.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use serde::Deserialize;

use super::peer::find_reason;
use crate::paths;
use crate::python::run_command;
use crate::report::Table;

/// The measurement, in the checkout.
const SCRIPT: &str = "bench/peers/nvjpeg.py";

/// The longest time of a run in seconds.
const MAX_SECONDS: u32 = 60;

/// What is printed for a backend of nvJPEG at a scale.
#[derive(Debug, Deserialize)]
struct Measured {
    backend: String,
    scale: u32,
    batch: u32,
    /// Those for JPEG, times their cores.
    engines: Option<String>,
    photos_per_s: Option<f64>,
    gigapixels_per_s: Option<f64>,
    cpu_ms_per_photo: Option<f64>,
    error: Option<String>,
}

/// The table that [`add_rows`] fills.
pub fn new_table() -> Table {
    let columns = ["photos", "backend", "engines", "scale", "photos/s", "gigapixels/s", "CPU ms/photo"];
    Table::new("nvJPEG by itself, batches of photos in the host's memory", &columns)
}

/// Measures nvJPEG with this Python on the photos of a folder and adds a row for each backend and scale. Why it failed goes
/// into the notes: the check goes on without it.
pub fn add_rows(python: &Path, folder: &Path, size: &str, table: &mut Table, notes: &mut Vec<String>) {
    match run(python, folder) {
        Ok(rows) => rows.iter().for_each(|row| row.report(size, table, notes)),
        Err(error) => notes.push(format!("nvJPEG, {size}: not measured: {}.", find_reason(&error))),
    }
}

fn run(python: &Path, folder: &Path) -> anyhow::Result<Vec<Measured>> {
    let mut command = Command::new("timeout");
    command.arg(MAX_SECONDS.to_string()).arg(python).arg("-B").arg(paths::root().join(SCRIPT));
    parse(&run_command(command.arg("--photos").arg(folder))?)
}

/// Parses the last line that it printed.
fn parse(printed: &str) -> anyhow::Result<Vec<Measured>> {
    let line = printed.lines().rfind(|line| line.starts_with('[')).context("it printed no figures")?;
    serde_json::from_str(line).with_context(|| format!("cannot parse its output: {line}"))
}

impl Measured {
    fn report(&self, size: &str, table: &mut Table, notes: &mut Vec<String>) {
        let name = format!("{}, 1/{}, batches of {}", self.backend, self.scale, self.batch);
        let engines = self.engines.as_deref().unwrap_or("unknown");
        let (Some(rate), Some(pixels), Some(cpu)) =
            (self.photos_per_s, self.gigapixels_per_s, self.cpu_ms_per_photo)
        else {
            let error = self.error.as_deref().unwrap_or("no figures");
            notes.push(format!("nvJPEG, {size}, {name}, engines {engines}: {error}."));
            return;
        };
        table.add_row([
            size.to_owned(),
            self.backend.clone(),
            engines.to_owned(),
            format!("1/{}", self.scale),
            format!("{rate:.0}"),
            format!("{pixels:.2}"),
            format!("{cpu:.2}"),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_that_cannot_do_it_is_noted_beside_the_others() {
        let printed = "[{\"backend\": \"hardware\", \"scale\": 1, \"batch\": 16, \"engines\": \"7 x 1\", \"photos_per_s\": 310.5, \
             \"gigapixels_per_s\": 7.45, \"cpu_ms_per_photo\": 0.8}, \
             {\"backend\": \"gpu\", \"scale\": 2, \"batch\": 16, \"error\": \"scale: status 2\"}]\n";
        let (mut table, mut notes) = (new_table(), Vec::new());
        parse(printed).unwrap().iter().for_each(|row| row.report("24 MP", &mut table, &mut notes));
        assert_eq!(table.rows, [["24 MP", "hardware", "7 x 1", "1/1", "310", "7.45", "0.80"]]);
        assert_eq!(notes, ["nvJPEG, 24 MP, gpu, 1/2, batches of 16, engines unknown: scale: status 2."]);
        assert_eq!(parse("Traceback\n").unwrap_err().to_string(), "it printed no figures");
    }
}
