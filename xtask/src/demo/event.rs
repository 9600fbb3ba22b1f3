//! The sample event: drawn once by the generator of the tests, with the truth about who is in which photo.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::Value;

use crate::digest;
use crate::layout::Layout;
use crate::process::{cargo, run_visibly};
use crate::report::print_heading;
use crate::setup;

/// A drawn event on disk.
pub struct SampleEvent {
    folder: PathBuf,
    truth: Value,
}

/// A runner of the event.
pub struct Runner {
    /// A short name.
    pub name: String,
    /// The race number.
    pub bib: String,
    /// The file of a picture of the person.
    pub selfie: PathBuf,
    /// Whether the selfie is another photograph than the portrait in the photos.
    pub selfie_is_another_photograph: bool,
    /// The file names of the photos that show the runner.
    pub photos: BTreeSet<String>,
}

/// A bib and the path of a selfie, to search by hand.
pub struct ExampleSearch {
    /// The bib.
    pub bib: String,
    /// The path of the selfie.
    pub selfie: String,
}

impl SampleEvent {
    /// Draws the event, unless this version of the generator has already drawn it.
    pub fn draw_or_reuse(layout: &Layout) -> anyhow::Result<Self> {
        print_heading("Drawing a sample event");
        let folder = layout.state_path("sample-event");
        let recipe = hash_generator_sources(layout)?;
        if digest::has_stamp(&folder, &recipe) {
            println!("  already here: {}", folder.display());
        } else {
            digest::recreate_folder(&folder)?;
            let generator =
                ["run", "--release", "--package", "photofinish-scenes", "--bin", "sample-event", "--"];
            let portraits = setup::portraits_folder(layout);
            run_visibly(cargo(layout.root(), &generator).arg(&folder).arg("--portraits").arg(portraits))?;
            digest::write_stamp(&folder, &recipe)?;
        }
        let path = folder.join("truth.json");
        let text = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self { truth: serde_json::from_slice(&text)?, folder })
    }

    /// The folder of photos.
    pub fn photos_dir(&self) -> PathBuf {
        self.folder.join("photos")
    }

    /// All runners.
    pub fn runners(&self) -> Vec<Runner> {
        let runners = self.truth["runners"].as_array().into_iter().flatten();
        runners.map(|runner| self.read_runner(runner)).collect()
    }

    /// The bib and the selfie of the first runner.
    pub fn example_search(&self) -> ExampleSearch {
        let first = self.runners().into_iter().next();
        first.map_or_else(
            || ExampleSearch { bib: String::new(), selfie: String::new() },
            |runner| ExampleSearch { bib: runner.bib, selfie: runner.selfie.display().to_string() },
        )
    }

    fn read_runner(&self, runner: &Value) -> Runner {
        let text = |field: &str| runner[field].as_str().unwrap_or_default().to_owned();
        let name = text("name");
        let shows = |photo: &&Value| {
            photo["runners"].as_array().is_some_and(|names| names.contains(&name.clone().into()))
        };
        let photos = self.truth["photos"].as_array().into_iter().flatten().filter(shows);
        Runner {
            photos: photos.filter_map(|photo| photo["file"].as_str().map(str::to_owned)).collect(),
            bib: text("bib"),
            selfie: self.folder.join("selfies").join(text("selfie")),
            selfie_is_another_photograph: runner["selfie_is_another_photograph"]
                .as_bool()
                .unwrap_or_default(),
            name,
        }
    }
}

/// A hash over the sources of the generator.
fn hash_generator_sources(layout: &Layout) -> anyhow::Result<String> {
    let folder = layout.checkout_path("tests/scenes/src");
    let mut files: Vec<PathBuf> = list_source_files(&folder)?;
    files.push(layout.checkout_path("tests/scenes/src/bin/sample-event.rs"));
    files.sort();
    let mut versions = String::new();
    for file in files {
        versions
            .push_str(&digest::hash_file(&file).with_context(|| format!("cannot read {}", file.display()))?);
    }
    Ok(digest::hash_text(&versions))
}

fn list_source_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = folder.read_dir().with_context(|| format!("cannot list {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.is_file()).collect())
}
