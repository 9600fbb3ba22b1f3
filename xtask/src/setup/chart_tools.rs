//! Tools of the chart's tests: Helm, and the schemas of everything that the chart renders.

use std::ffi::OsStr;
use std::path::PathBuf;

use anyhow::Context;

use super::go::{self, GoModule};
use super::packages::{self, KUBERNETES_VALIDATE};
use super::python;
use crate::digest;
use crate::layout::Layout;
use crate::report::{StepOutcome, print_warning};

const HELM: GoModule = GoModule {
    path: "helm.sh/helm/v3",
    version: "v3.22.0",
    sum: "h1:n1if5iQgHYsujPAcO5oonH/KiSNUmqmUF0iGVjSF3AU=",
};

/// Defines `ScaledObject`.
const KEDA: GoModule = GoModule {
    path: "github.com/kedacore/keda/v2",
    version: "v2.21.0",
    sum: "h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps=",
};

/// Defines `ServiceMonitor` and `PrometheusRule`.
const PROMETHEUS_OPERATOR: GoModule = GoModule {
    path: "github.com/prometheus-operator/prometheus-operator",
    version: "v0.85.0",
    sum: "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
};

/// Definitions of custom resources: the module and the file in it.
const CUSTOM_RESOURCE_DEFINITIONS: [(&GoModule, &str); 3] = [
    (&KEDA, "config/crd/bases/keda.sh_scaledobjects.yaml"),
    (&PROMETHEUS_OPERATOR, "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml"),
    (&PROMETHEUS_OPERATOR, "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"),
];

/// The oldest Kubernetes version that the chart supports, and the newest.
const KUBERNETES: [&str; 2] = ["1.30", "1.37"];

const HELM_FOLDER: &str = "helm";
const SCHEMA_FOLDER: &str = "chart-schemas";

/// Helm's program.
pub fn helm(layout: &Layout) -> PathBuf {
    layout.state_path(HELM_FOLDER).join("helm")
}

/// The folder of the schemas: `kubernetes-VERSION.json`, and definitions of custom resources as YAML.
pub fn schemas(layout: &Layout) -> PathBuf {
    layout.state_path(SCHEMA_FOLDER)
}

/// Builds Helm from its source, fetched through Go's module proxy.
pub fn install_helm(layout: &Layout) -> anyhow::Result<StepOutcome> {
    let folder = layout.state_path(HELM_FOLDER);
    if digest::has_stamp(&folder, &HELM.recipe()) && helm(layout).is_file() {
        return Ok(StepOutcome::Present);
    }
    if !go::is_installed() {
        return Ok(warn_no_go("Helm"));
    }
    digest::recreate_folder(&folder)?;
    go::build_program(&HELM, "./cmd/helm", &helm(layout))?;
    digest::write_stamp(&folder, &HELM.recipe())?;
    Ok(StepOutcome::Done(format!("{} {}, built by Go", HELM.path, HELM.version)))
}

/// Fetches the schemas.
pub fn install_schemas(layout: &Layout) -> anyhow::Result<StepOutcome> {
    let folder = schemas(layout);
    let recipe =
        [KUBERNETES_VALIDATE.recipe(), KUBERNETES.join(" "), KEDA.recipe(), PROMETHEUS_OPERATOR.recipe()]
            .join("\n");
    if digest::has_stamp(&folder, &recipe) {
        return Ok(StepOutcome::Present);
    }
    if !go::is_installed() {
        return Ok(warn_no_go("the schemas of custom resources"));
    }
    digest::recreate_folder(&folder)?;
    let wheel = packages::fetch(layout, &KUBERNETES_VALIDATE)?;
    let patterns = KUBERNETES
        .map(|version| format!("*/v{version}.0-local-strict/_definitions.json=kubernetes-{version}.json"));
    let mut arguments = vec![wheel.as_os_str(), folder.as_os_str()];
    arguments.extend(patterns.iter().map(|pattern| OsStr::new(pattern.as_str())));
    python::run_script(layout, "unpack.py", &arguments)?;
    for (module, file) in CUSTOM_RESOURCE_DEFINITIONS {
        let source = go::download_module(module)?.join(file);
        let name = source.file_name().context("a definition has a file name")?;
        // By content: files of Go's cache are read-only, and `fs::copy` would copy that.
        let text = std::fs::read(&source).with_context(|| format!("cannot read {}", source.display()))?;
        std::fs::write(folder.join(name), text)?;
    }
    digest::write_stamp(&folder, &recipe)?;
    Ok(StepOutcome::Done(format!("Kubernetes {}, KEDA, Prometheus operator", KUBERNETES.join(" and "))))
}

fn warn_no_go(what: &str) -> StepOutcome {
    print_warning(&format!(
        "no {what}, so the tests of the chart are skipped: there is no Go on this machine.\n\
         Install Go 1.21 or newer and run this again."
    ));
    StepOutcome::Done("skipped".into())
}
