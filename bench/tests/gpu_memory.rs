//! `bench gpu-memory` on few photos, in a process of its own, whose memory no other test takes.

use std::process::Command;

use serde_json::Value;

/// Longer runs are flat to the twentieth; in a short one what fills up once counts for more.
const MAX_GROWTH: f64 = 1.25;

#[test]
fn memory_is_flat_over_photos_although_the_device_is_lost_and_lacks_memory() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    // Beside the folder of this test: the variable with its path has a hyphen, which `.cargo/rustc.sh` does not pass on.
    let test = std::env::current_exe().unwrap();
    let mut bench = Command::new(test.ancestors().nth(2).unwrap().join("photofinish-bench"));
    let output = bench.args(["gpu-memory", "--photos", "2000", "--json"]).arg(&file).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let goals = report["report"]["goals"].as_array().unwrap();
    assert_eq!(goals.len(), 8, "{text}");
    for goal in goals {
        let (what, figure) = (goal["what"].as_str().unwrap(), goal["figure"].as_f64().unwrap());
        let is_growth = what.starts_with("resident memory");
        let is_met = match (goal["target"]["at_least"].as_f64(), goal["target"]["at_most"].as_f64()) {
            (Some(least), None) => figure >= least,
            (None, Some(most)) => figure <= if is_growth { MAX_GROWTH } else { most },
            _ => panic!("{goal}"),
        };
        assert!(is_met, "{what}: {figure}\n{text}");
    }
}
