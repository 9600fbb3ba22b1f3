//! Describes the machine and the command of a measurement, for the line above every table.

use std::path::Path;
use std::process::Command;

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
        let today = time::OffsetDateTime::now_utc().date();
        let mut facts =
            vec![today.to_string(), cpu_model(), describe_cores(), format!("load {}", load_average())];
        facts.push(format!("photofinish {}", describe_revision(root)));
        facts.extend(versions.iter().cloned());
        Self { line: facts.join(", "), command: repeat_command(root) }
    }
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

/// Returns version and commit of the checkout.
fn describe_revision(root: &Path) -> String {
    let commit = Command::new("git").arg("-C").arg(root).args(["rev-parse", "--short", "HEAD"]).output();
    let commit = commit.ok().filter(|output| output.status.success());
    let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    match commit {
        Some(commit) => format!("{} ({commit})", env!("CARGO_PKG_VERSION")),
        None => env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// Returns the command as it is typed, without the checkout's path.
fn repeat_command(root: &Path) -> String {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    // The path of the JSON file does not affect the figures.
    if let Some(index) = words.iter().position(|word| word == "--json") {
        words.drain(index..(index + 2).min(words.len()));
    }
    let root = format!("{}/", root.display());
    for word in &mut words {
        *word = word.replace(&root, "");
    }
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
    let prefix = match words.first().map(String::as_str) {
        _ if program == Some("attack") => "cargo xtask attack",
        _ if program == Some("soak") => "cargo xtask soak",
        Some("eval" | "gpu-check") => "cargo xtask",
        _ => "cargo xtask bench",
    };
    format!("{prefix} {}", words.join(" "))
}
