//! Runs Helm on the chart of this repository.

use std::path::PathBuf;
use std::process::Command;

use photofinish_tests::harness::{CommandOutput, read_variable, repository_root, run_command, skip_or_fail};
use serde_json::Value;

/// The complete examples beside the chart.
pub(crate) const EXAMPLES: [&str; 2] = ["values-cpu.yaml", "values-gpu.yaml"];

/// Helm, for the chart.
pub(crate) struct Helm {
    program: PathBuf,
}

impl Helm {
    /// Finds the program that set-up built; returns `None`, and prints why, if it is missing.
    #[track_caller]
    pub(crate) fn find(test: &str) -> Option<Self> {
        let program = read_variable("PHOTOFINISH_TEST_HELM")
            .map_or_else(|| repository_root().join(".photofinish/helm/helm"), PathBuf::from);
        if program.is_file() {
            return Some(Self { program });
        }
        skip_or_fail(test, &format!("{} is not there: run `cargo xtask test`", program.display()));
        None
    }

    /// Runs one of Helm's commands on the chart.
    pub(crate) fn command(&self, name: &[&str], arguments: &[&str]) -> CommandOutput {
        // Isolated from the Helm folders of the user.
        let home = tempfile::tempdir().expect("a folder");
        run_command(
            Command::new(&self.program)
                .args(name)
                .arg(chart())
                .args(arguments)
                .env("HELM_CACHE_HOME", home.path())
                .env("HELM_CONFIG_HOME", home.path())
                .env("HELM_DATA_HOME", home.path())
                .env("KUBECONFIG", home.path().join("none"))
                .current_dir(chart()),
        )
    }

    /// Renders the chart as the release `photofinish` with an example and more arguments.
    pub(crate) fn template(&self, example: &str, more: &[&str]) -> CommandOutput {
        // The version that Helm assumes depends on its build; the result must not.
        let arguments =
            [&["--namespace", "photos", "--kube-version", "1.37.0", "--values", example], more].concat();
        self.command(&["template", "photofinish"], &arguments)
    }

    /// Returns the rendered manifests as text.
    #[track_caller]
    pub(crate) fn text(&self, example: &str, more: &[&str]) -> String {
        self.template(example, more).expect_success().to_owned() + "\n"
    }

    /// Returns the rendered manifests.
    #[track_caller]
    pub(crate) fn manifests(&self, example: &str, more: &[&str]) -> Vec<Value> {
        documents(&self.text(example, more))
    }
}

/// Returns the folder of the chart.
pub(crate) fn chart() -> PathBuf {
    repository_root().join("helm")
}

/// Parses the documents of a YAML text.
#[track_caller]
pub(crate) fn documents(yaml: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).expect("YAML");
    documents.into_iter().filter(|document| !document.is_null()).collect()
}

/// Returns kind and name of a manifest.
pub(crate) fn title(manifest: &Value) -> String {
    let word = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    format!("{} {}", word(&manifest["kind"]), word(&manifest["metadata"]["name"]))
}

/// Returns the manifest with this title.
#[track_caller]
pub(crate) fn find_manifest<'a>(manifests: &'a [Value], wanted: &str) -> &'a Value {
    manifests
        .iter()
        .find(|manifest| title(manifest) == wanted)
        .unwrap_or_else(|| panic!("no {wanted} among {:?}", manifests.iter().map(title).collect::<Vec<_>>()))
}
