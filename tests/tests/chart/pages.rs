//! The commands in the chart's README and examples.

use crate::rendering::{EXAMPLES, chart};

/// Returns the commands in a page, or in the comments of a values file.
fn commands(file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(chart().join(file)).expect(file);
    let lines = text.lines().map(|line| line.trim_start_matches(['#', ' ']));
    lines
        .filter(|line| line.starts_with("kubectl ") || line.starts_with("helm install "))
        .map(str::to_owned)
        .collect()
}

#[test]
fn commands_name_the_namespace_that_is_created_first() {
    const CREATE_NAMESPACE: &str = "kubectl create namespace photofinish";
    let page = commands("README.md");
    let (first, others) = page.split_first().expect("commands");
    assert_eq!(first, CREATE_NAMESPACE, "the namespace must be created first");
    assert!(others.len() >= 4, "three Secrets and the chart: {others:?}");
    let notes = ["values.yaml", EXAMPLES[0]].map(commands).concat();
    assert!(notes.len() >= 3, "two Secrets and the chart: {notes:?}");
    for command in others.iter().chain(&notes) {
        assert!(command.contains(" --namespace photofinish "), "not in the namespace: {command}");
    }
}
