//! What the tests of the chart need: Helm, and the schemas of everything that the chart renders.

use std::ffi::OsStr;
use std::path::PathBuf;

use anyhow::Context;

use super::go::{self, Module};
use super::packages::{self, KUBERNETES_VALIDATE};
use super::python;
use crate::digest;
use crate::layout::Layout;
use crate::report::{Outcome, loud};

const HELM: Module = Module {
    path: "helm.sh/helm/v3",
    version: "v3.22.0",
    sum: "h1:n1if5iQgHYsujPAcO5oonH/KiSNUmqmUF0iGVjSF3AU=",
};

/// Defines `ScaledObject`.
const KEDA: Module = Module {
    path: "github.com/kedacore/keda/v2",
    version: "v2.21.0",
    sum: "h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps=",
};

/// Defines `ServiceMonitor` and `PrometheusRule`.
const PROMETHEUS_OPERATOR: Module = Module {
    path: "github.com/prometheus-operator/prometheus-operator",
    version: "v0.85.0",
    sum: "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
};

/// Definitions of custom resources: the module and the file in it.
const DEFINITIONS: [(&Module, &str); 3] = [
    (&KEDA, "config/crd/bases/keda.sh_scaledobjects.yaml"),
    (&PROMETHEUS_OPERATOR, "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml"),
    (&PROMETHEUS_OPERATOR, "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"),
];

/// The oldest Kubernetes that the chart says it runs on, and the newest there is.
const KUBERNETES: [&str; 2] = ["1.30", "1.37"];

const HELM_FOLDER: &str = "helm";
const SCHEMA_FOLDER: &str = "chart-schemas";

/// Helm's program.
pub fn helm(layout: &Layout) -> PathBuf {
    layout.state(HELM_FOLDER).join("helm")
}

/// The folder of the schemas: `kubernetes-VERSION.json`, and definitions of custom resources as YAML.
pub fn schemas(layout: &Layout) -> PathBuf {
    layout.state(SCHEMA_FOLDER)
}

/// Builds Helm from its source, which Go's proxy has: a machine that reaches package registries needs nothing else.
pub fn install_helm(layout: &Layout) -> anyhow::Result<Outcome> {
    let folder = layout.state(HELM_FOLDER);
    if digest::is_made_from(&folder, &HELM.recipe()) && helm(layout).is_file() {
        return Ok(Outcome::Present);
    }
    if !go::is_here() {
        return Ok(without_go("Helm"));
    }
    digest::emptied(&folder)?;
    go::build(&HELM, "./cmd/helm", &helm(layout))?;
    digest::note_made_from(&folder, &HELM.recipe())?;
    Ok(Outcome::Done(format!("{} {}, built by Go", HELM.path, HELM.version)))
}

/// Fetches the schemas.
pub fn install_schemas(layout: &Layout) -> anyhow::Result<Outcome> {
    let folder = schemas(layout);
    let recipe =
        [KUBERNETES_VALIDATE.recipe(), KUBERNETES.join(" "), KEDA.recipe(), PROMETHEUS_OPERATOR.recipe()]
            .join("\n");
    if digest::is_made_from(&folder, &recipe) {
        return Ok(Outcome::Present);
    }
    if !go::is_here() {
        return Ok(without_go("the schemas of custom resources"));
    }
    digest::emptied(&folder)?;
    let wheel = packages::fetch(layout, &KUBERNETES_VALIDATE)?;
    let patterns = KUBERNETES
        .map(|version| format!("*/v{version}.0-local-strict/_definitions.json=kubernetes-{version}.json"));
    let mut arguments = vec![wheel.as_os_str(), folder.as_os_str()];
    arguments.extend(patterns.iter().map(|pattern| OsStr::new(pattern.as_str())));
    python::run_script(layout, "unpack.py", &arguments)?;
    for (module, file) in DEFINITIONS {
        let source = go::module(module)?.join(file);
        let name = source.file_name().context("a definition has a name")?;
        // By content: files of Go's cache are read-only, and a copy of one would be too.
        let text = std::fs::read(&source).with_context(|| format!("cannot read {}", source.display()))?;
        std::fs::write(folder.join(name), text)?;
    }
    digest::note_made_from(&folder, &recipe)?;
    Ok(Outcome::Done(format!("Kubernetes {}, KEDA, Prometheus operator", KUBERNETES.join(" and "))))
}

fn without_go(what: &str) -> Outcome {
    loud(&format!(
        "no {what}, so the tests of the chart are skipped: there is no Go on this machine.\n\
         Install Go 1.21 or newer and run this again."
    ));
    Outcome::Done("not here".into())
}
