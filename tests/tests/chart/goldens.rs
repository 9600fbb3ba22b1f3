//! Helm's own checks, and the rendered examples. Updated with `UPDATE_GOLDENS=1 cargo test -p photofinish-tests
//! --test chart`: a change of the chart is reviewed by its effect in the cluster.

use photofinish_tests::harness::read_variable;

use crate::rendering::{EXAMPLES, Helm, chart};

#[test]
fn helm_finds_nothing_wrong_with_the_chart_and_its_examples() {
    let Some(helm) = Helm::find("helm_finds_nothing_wrong_with_the_chart_and_its_examples") else { return };
    for example in EXAMPLES {
        let arguments = ["--strict", "--kube-version", "1.37.0", "--values", example];
        let output = helm.command(&["lint"], &arguments);
        assert_eq!(output.code, Some(0), "{example}: {}", output.combined_output());
        for word in ["[WARNING]", "[ERROR]"] {
            assert!(!output.combined_output().contains(word), "{example}: {}", output.combined_output());
        }
    }
}

#[test]
fn both_examples_render_as_reviewed() {
    let Some(helm) = Helm::find("both_examples_render_as_reviewed") else { return };
    for example in EXAMPLES {
        // The dashboard is a separate file: nobody would review a copy of it in each golden.
        let rendered = helm.text(example, &["--set", "dashboard.enabled=false"]);
        let path = chart().join("tests/golden").join(example.replace("values-", ""));
        if read_variable("UPDATE_GOLDENS").is_some() {
            std::fs::write(&path, &rendered).expect("a golden is written");
        }
        let golden = std::fs::read_to_string(&path).expect("a golden");
        let difference = first_difference(&golden, &rendered);
        assert!(
            difference.is_none(),
            "{example} renders otherwise than {}: {}; if that is meant, run UPDATE_GOLDENS=1 cargo test -p \
             photofinish-tests --test chart",
            path.display(),
            difference.unwrap_or_default()
        );
    }
}

/// Returns the first line that differs, in both versions.
fn first_difference(golden: &str, rendered: &str) -> Option<String> {
    let (mut old, mut new) = (golden.lines(), rendered.lines());
    for number in 1.. {
        match (old.next(), new.next()) {
            (None, None) => return None,
            (old, new) if old == new => {}
            (old, new) => return Some(format!("line {number} was {old:?} and is {new:?}")),
        }
    }
    None
}
