//! Portraits for the sample event: pictures in the public domain (works of the United States government) from well-known
//! packages.

use std::ffi::OsStr;
use std::path::PathBuf;

use anyhow::bail;

use super::packages::{self, FACE_RECOGNITION, SCIKIT_IMAGE};
use super::python;
use crate::digest;
use crate::layout::Layout;
use crate::report::StepOutcome;

/// File name and SHA-256 of each portrait.
const PORTRAITS: &[(&str, &str)] = &[
    ("astronaut.png", "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5"),
    ("biden.jpg", "3c17508bb91554c637a2eabddfae790e5bb1caba93130814fc2ac50be9760c4c"),
    ("obama.jpg", "0930e3aa8cae5920329c0c8cbc6a2ab70f47b0e67b432875beaa95cbf7e741f6"),
    ("obama2.jpg", "a7efcc907375274796f39646510704aa86672d59f6d5469d69af3c85590976a6"),
    ("obama3.jpg", "76ac6bf97c36dc2da0ad16a537d6a5ac1b10f48d49aac29a0cca9a17cdbc3ca3"),
];

/// The folder of the portraits.
pub fn folder(layout: &Layout) -> PathBuf {
    layout.state_path("portraits")
}

/// Fetches and unpacks the portraits.
pub fn install(layout: &Layout) -> anyhow::Result<StepOutcome> {
    if find_wrong_file(layout).is_none() {
        return Ok(StepOutcome::Present);
    }
    let folder = folder(layout);
    let from_wheel = packages::fetch(layout, &SCIKIT_IMAGE)?;
    let from_source = packages::fetch(layout, &FACE_RECOGNITION)?;
    let unpack = |archive: &PathBuf, patterns: &[&str]| {
        let mut arguments = vec![archive.as_os_str(), folder.as_os_str()];
        arguments.extend(patterns.iter().map(|pattern| OsStr::new(*pattern)));
        python::run_script(layout, "unpack.py", &arguments)
    };
    unpack(&from_wheel, &["skimage/data/astronaut.png"])?;
    unpack(&from_source, &["*/tests/test_images/biden.jpg", "*/tests/test_images/obama*.jpg", "!*partial*"])?;
    if let Some(name) = find_wrong_file(layout) {
        bail!("the portrait {name} is not the expected one");
    }
    Ok(StepOutcome::Done(format!("{} pictures of 3 people", PORTRAITS.len())))
}

fn find_wrong_file(layout: &Layout) -> Option<&'static str> {
    let folder = folder(layout);
    PORTRAITS
        .iter()
        .find(|(name, sha256)| !digest::file_matches(&folder.join(name), sha256))
        .map(|(name, _)| *name)
}
