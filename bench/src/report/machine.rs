//! Describes the machine and the command of a measurement, for the line above every table.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// The load when the program started.
static LOAD_AT_START: OnceLock<String> = OnceLock::new();

/// The option that names a file for the figures, and does not affect them.
const JSON_OPTION: &str = "--json";

/// Date, machine, versions and command of a measurement.
pub struct RunEnvironment {
    /// Date, machine and versions in one line.
    pub line: String,
    /// The command that repeats the measurement.
    pub command: String,
}

impl RunEnvironment {
    /// Describes this machine. `versions` are those of other programs that took part, for example the runtime's.
    pub fn detect(root: &Path, versions: &[String]) -> Self {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let program = std::env::current_exe().ok();
        let program = program.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
        let today = time::OffsetDateTime::now_utc().date();
        let load = format!("load {} at the start", load_at_start());
        let mut facts = vec![today.to_string(), cpu_model(), describe_cores(), load];
        facts.push(format!("photofinish {}", describe_revision(root, has_option(&words, "--binary"))));
        facts.extend(versions.iter().cloned());
        Self {
            line: facts.join(", "),
            command: repeat_command(program.unwrap_or_default(), words, &format!("{}/", root.display())),
        }
    }
}

/// Reads the load that reports name, to be called when a program starts: at its end, most of the load of the last minute is
/// its own. Without it, it is read for the first report.
pub fn note_load() {
    load_at_start();
}

fn load_at_start() -> &'static str {
    LOAD_AT_START.get_or_init(load_average)
}

fn cpu_model() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        text.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(':'));
    model
        .map_or_else(|| format!("unknown {} CPU", std::env::consts::ARCH), |(_, name)| name.trim().to_owned())
}

fn describe_cores() -> String {
    std::thread::available_parallelism().map_or("unknown cores".to_owned(), |n| format!("{n} cores"))
}

/// Returns the load average of the last minute. Above the number of cores, the machine was busy with other work.
fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("unknown").to_owned()
}

/// Returns version and commit of the checkout, and whether what was measured may be something else.
fn describe_revision(root: &Path, is_another_binary: bool) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut facts: Vec<String> = git(root, &["rev-parse", "--short", "HEAD"]).into_iter().collect();
    // Earlier measurements have written their results into the page.
    let changes = git(root, &["status", "--porcelain", "--", ":/", ":(top,exclude)bench/RESULTS.md"]);
    if changes.is_some_and(|changes| !changes.is_empty()) {
        facts.push("modified".to_owned());
    }
    if is_another_binary {
        facts.push("another binary".to_owned());
    }
    if facts.is_empty() { version.to_owned() } else { format!("{version} ({})", facts.join(", ")) }
}

/// Returns what git prints; `None` when it fails.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Whether the command line has an option with a value, in either form.
fn has_option(words: &[String], option: &str) -> bool {
    words.iter().any(|word| word == option || is_assigned(word, option))
}

/// Whether a word is `OPTION=VALUE`.
fn is_assigned(word: &str, option: &str) -> bool {
    word.strip_prefix(option).is_some_and(|rest| rest.starts_with('='))
}

/// Returns the command as it is typed, without the checkout's path: of the program with this name and these arguments.
fn repeat_command(program: &str, mut words: Vec<String>, root: &str) -> String {
    words.retain(|word| !is_assigned(word, JSON_OPTION));
    while let Some(index) = words.iter().position(|word| word == JSON_OPTION) {
        words.drain(index..(index + 2).min(words.len()));
    }
    for word in &mut words {
        *word = word.replace(root, "");
    }
    if words.first().is_some_and(|word| word == "gpu-check") {
        words = to_gpu_check(words);
    }
    let prefix = match words.first().map(String::as_str) {
        _ if program == "attack" => "cargo xtask attack",
        _ if program == "soak" => "cargo xtask soak",
        Some("eval" | "gpu-check") => "cargo xtask",
        _ => "cargo xtask bench",
    };
    let quoted = words.iter().map(|word| quote(word));
    std::iter::once(prefix.to_owned()).chain(quoted).collect::<Vec<_>>().join(" ")
}

/// Returns the words of `cargo xtask gpu-check`, which takes the device itself, adds the Python that set-up made, and passes on
/// what follows `--`.
fn to_gpu_check(words: Vec<String>) -> Vec<String> {
    let (mut own, mut passed) = (Vec::new(), Vec::new());
    let mut words = words.into_iter();
    own.extend(words.next());
    while let Some(word) = words.next() {
        if is_assigned(&word, "--device") {
            own.push(word);
        } else if word == "--device" {
            own.push(word);
            own.extend(words.next());
        } else if word == "--peer-python" {
            let python = words.next().filter(|python| !python.starts_with(".photofinish/"));
            passed.extend(python.into_iter().flat_map(|python| [word.clone(), python]));
        } else {
            passed.push(word);
        }
    }
    if !passed.is_empty() {
        own.push("--".to_owned());
    }
    own.extend(passed);
    own
}

/// Returns a word as a shell takes it for one.
fn quote(word: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_./=:,+@%".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(program: &str, words: &[&str]) -> String {
        repeat_command(program, words.iter().map(|word| (*word).to_owned()).collect(), "/checkout/")
    }

    #[test]
    fn a_command_can_be_typed_again() {
        let bench = |words: &[&str]| command("photofinish-bench", words);
        let eval = bench(&["eval", "bibs", "--json", "a file.json", "--write"]);
        assert_eq!(eval, "cargo xtask eval bibs --write");
        assert_eq!(bench(&["cpu", "--json=/tmp/cpu.json", "--alone"]), "cargo xtask bench cpu --alone");
        let cpu = bench(&["cpu", "--photos", "/my photos/Bob's", "--binary", "/checkout/target/a"]);
        assert_eq!(cpu, r"cargo xtask bench cpu --photos '/my photos/Bob'\''s' --binary target/a");
        assert_eq!(command("soak", &["scale"]), "cargo xtask soak scale");
        assert_eq!(bench(&["cpu", "--json"]), "cargo xtask bench cpu");
    }

    #[test]
    fn what_the_gpu_check_passes_on_follows_two_hyphens() {
        let check = |words: &[&str]| command("photofinish-bench", &[&["gpu-check"], words].concat());
        assert_eq!(check(&[]), "cargo xtask gpu-check");
        assert_eq!(check(&["--device", "wgpu"]), "cargo xtask gpu-check --device wgpu");
        let vulkan = check(&["--device", "wgpu", "--limit", "4", "--json", "x.json"]);
        assert_eq!(vulkan, "cargo xtask gpu-check --device wgpu -- --limit 4");
        let cuda =
            check(&["--peer-python", "/checkout/.photofinish/venv/bin/python", "--megapixels", "24,2"]);
        assert_eq!(cuda, "cargo xtask gpu-check -- --megapixels 24,2", "set-up names its Python again");
        let own = check(&["--peer-python", "/usr/bin/python3"]);
        assert_eq!(own, "cargo xtask gpu-check -- --peer-python /usr/bin/python3");
    }

    #[test]
    fn a_tree_that_is_not_the_commit_is_called_modified() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let git = |arguments: &[&str]| {
            let identity = [
                "-c",
                "user.name=bench",
                "-c",
                "user.email=bench@race.example",
                "-c",
                "commit.gpgSign=false",
            ];
            super::git(root, &[&identity[..], arguments].concat()).unwrap()
        };
        git(&["init", "--quiet"]);
        std::fs::create_dir(root.join("bench")).unwrap();
        for file in ["bench/RESULTS.md", "bench/main.rs"] {
            std::fs::write(root.join(file), "").unwrap();
        }
        git(&["add", "."]);
        git(&["commit", "--quiet", "--message", "All"]);
        let commit = git(&["rev-parse", "--short", "HEAD"]);
        let version = env!("CARGO_PKG_VERSION");
        std::fs::write(root.join("bench/RESULTS.md"), "new").unwrap();
        assert_eq!(describe_revision(root, false), format!("{version} ({commit})"));
        assert_eq!(describe_revision(root, true), format!("{version} ({commit}, another binary)"));
        std::fs::write(root.join("bench/main.rs"), "new").unwrap();
        assert_eq!(describe_revision(root, true), format!("{version} ({commit}, modified, another binary)"));
    }

    #[test]
    fn another_binary_is_noticed_in_either_form() {
        let has = |word: &str| has_option(&[word.to_owned()], "--binary");
        assert!(has("--binary") && has("--binary=photofinish"));
        assert!(!has("--against-binary") && !has("--binary-of"));
    }

    #[test]
    fn the_load_is_that_of_the_start() {
        note_load();
        let environment = RunEnvironment::detect(Path::new("/"), &[]);
        assert!(
            environment.line.contains(&format!("load {} at the start", load_at_start())),
            "{}",
            environment.line
        );
        assert!(std::ptr::eq(load_at_start(), load_at_start()));
    }
}
