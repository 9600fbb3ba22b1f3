//! The files of the repository, for the other tests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The workspace's folder.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().canonicalize().unwrap()
}

/// Every file that git tracks or would add, relative to the root.
pub fn files() -> Vec<String> {
    let list = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(list.status.success(), "git ls-files: {}", String::from_utf8_lossy(&list.stderr));
    let names = String::from_utf8(list.stdout).unwrap();
    // A file that was removed and not yet committed is still listed.
    let exists = |name: &&str| root().join(name).is_file();
    names.split('\0').filter(|name| !name.is_empty()).filter(exists).map(str::to_owned).collect()
}

/// Rust files with their text.
pub fn rust() -> Vec<(String, String)> {
    let is_rust = |name: &String| name.ends_with(".rs");
    files().into_iter().filter(is_rust).map(|name| (name.clone(), text(&name))).collect()
}

/// The text of a file.
pub fn text(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Whether a whole file is test code.
pub fn is_test(name: &str) -> bool {
    name.contains("/tests/") || name.ends_with("/tests.rs") || name.ends_with("_tests.rs")
}

/// A file's lines before its unit tests. Other items that only tests have, and declarations of modules, are no end of it.
pub fn production_lines(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let is_start =
        |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{');
    lines.windows(2).position(is_start).unwrap_or(lines.len())
}

#[test]
fn lines_are_counted_up_to_the_module_of_tests_alone() {
    let production =
        "#[cfg(test)]\nmod other;\n#[cfg(test)]\nuse a;\nimpl A {\n    #[cfg(test)]\n    fn b() {}\n}\n";
    assert_eq!(production_lines(production), 8);
    assert_eq!(production_lines(&format!("{production}\n#[cfg(test)]\nmod tests {{\n    use c;\n}}\n")), 9);
    assert_eq!(production_lines(""), 0);
}
