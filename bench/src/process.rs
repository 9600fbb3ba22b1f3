//! CPU time and memory of processes, read from `/proc`.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;

/// Unit of CPU time in `/proc/<pid>/stat`: `USER_HZ` is 100 on every supported architecture.
const TICK: Duration = Duration::from_millis(10);

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Resident set size.
    pub resident: u64,
    /// Peak resident set size (`VmHWM`).
    pub peak: u64,
}

/// Returns the user and system time of a process and all its descendants, including ended children.
///
/// # Errors
/// When the process has ended.
pub fn process_tree_cpu(pid: u32) -> anyhow::Result<Duration> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Ok(id) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        // A process may end between the listing and the read; its time then counts as its parent's.
        if let Ok(stat) = Stat::read(&entry.path().join("stat")) {
            children.entry(stat.parent).or_default().push(id);
        }
    }
    let mut total = Stat::read(Path::new(&format!("/proc/{pid}/stat")))?.cpu_with_children;
    let mut remaining = children.remove(&pid).unwrap_or_default();
    while let Some(child) = remaining.pop() {
        if let Ok(stat) = Stat::read(Path::new(&format!("/proc/{child}/stat"))) {
            total += stat.cpu_with_children;
        }
        remaining.extend(children.remove(&child).unwrap_or_default());
    }
    Ok(total)
}

/// Returns the user and system time of the running threads of a process by name, without trailing numbers (`decode-0` and
/// `decode-1` are `decode`).
///
/// # Errors
/// When the process has ended.
pub fn thread_cpu_by_name(pid: u32) -> anyhow::Result<BTreeMap<String, Duration>> {
    let mut threads = BTreeMap::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/task")).context("the process has ended")?.flatten() {
        if let Ok(stat) = Stat::read(&entry.path().join("stat")) {
            let name = stat.name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-').to_owned();
            *threads.entry(name).or_default() += stat.cpu;
        }
    }
    Ok(threads)
}

/// Returns the memory of a process.
///
/// # Errors
/// When the process has ended.
pub fn read_memory(pid: u32) -> anyhow::Result<Memory> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("the process has ended")?;
    let bytes = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
    };
    Ok(Memory {
        resident: bytes("VmRSS").context("no VmRSS in the process's status")?,
        peak: bytes("VmHWM").context("no VmHWM in the process's status")?,
    })
}

/// Returns the user and system time of all threads of this process: networks may compute on threads other than the caller's.
pub fn own_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Returns the time that all cores have been busy since the machine started.
///
/// # Errors
/// When `/proc/stat` cannot be read or parsed.
pub fn machine_cpu() -> anyhow::Result<Duration> {
    let text = std::fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
    parse_busy_time(&text).context("cannot parse /proc/stat")
}

/// User, nice, system, interrupt and soft-interrupt time of the line of all cores, as in `man 5 proc`.
fn parse_busy_time(text: &str) -> Option<Duration> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    let ticks: u64 = [0, 1, 2, 5, 6].iter().map(|&field| fields.get(field).copied()).sum::<Option<u64>>()?;
    Some(Duration::from_millis(10 * ticks))
}

/// The relevant fields of a `stat` file.
struct Stat {
    name: String,
    parent: u32,
    cpu: Duration,
    cpu_with_children: Duration,
}

impl Stat {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("cannot parse {}", path.display()))
    }

    /// Parses the fields after the name, which is in parentheses and may contain any character; numbered as in `man 5 proc`.
    fn parse(text: &str) -> Option<Self> {
        let name_from = text.find('(')? + 1;
        let name_to = text.rfind(')')?;
        let fields: Vec<&str> = text[name_to + 1..].split_whitespace().collect();
        let ticks = |number: usize| fields.get(number - 3)?.parse::<u32>().ok();
        let (user, system) = (ticks(14)?, ticks(15)?);
        let (waited_user, waited_system) = (ticks(16)?, ticks(17)?);
        Some(Self {
            name: text[name_from..name_to].to_owned(),
            parent: fields.get(1)?.parse().ok()?,
            cpu: TICK * (user + system),
            cpu_with_children: TICK * (user + system + waited_user + waited_system),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_with_brackets_in_the_name_is_read() {
        let line = "42 (a (b) c-1) S 7 42 42 0 -1 0 0 0 0 0 120 30 5 6 20 0 1 0 0 0 0";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.name.as_str(), stat.parent), ("a (b) c-1", 7));
        assert_eq!(stat.cpu, Duration::from_millis(1500));
        assert_eq!(stat.cpu_with_children, Duration::from_millis(1610));
    }

    #[test]
    fn waiting_is_not_counted_as_busy() {
        let text = "cpu  100 1 20 5000 700 3 4 0 0 0\ncpu0 100 1 20 5000 700 3 4 0 0 0\n";
        assert_eq!(parse_busy_time(text), Some(Duration::from_millis(1280)));
        assert_eq!(parse_busy_time("cpu0 1 2"), None);
    }

    #[test]
    fn this_process_has_used_cpu_and_memory() {
        let before = own_cpu();
        let sum: u64 = (0..3_000_000u64).map(|i| i.rotate_left(7) ^ 13).fold(0, u64::wrapping_add);
        assert!(sum != 0 && own_cpu() > before);
        assert!(read_memory(std::process::id()).unwrap().resident > 0);
        assert!(process_tree_cpu(std::process::id()).is_ok());
        assert!(!thread_cpu_by_name(std::process::id()).unwrap().is_empty());
    }
}
