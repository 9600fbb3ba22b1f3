//! How much memory this process may use, and how much the settings let it need. Defaults follow the number of cores alone. Where
//! that is more than the limit, the kernel kills the process while it reads photos, so the log and `doctor` say so before.

use std::cmp::Reverse;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use photofinish_models::onnx::runtime::NetworkDevice;
use photofinish_pipeline::{MAX_BYTES_PER_PIXEL, ThreadCounts};

use crate::config::{Config, MEGABYTE};
use crate::role::Role;

/// Program, runtime, connections to the database, and the networks of selfies.
const BASE_BYTES: u64 = 200 * MEGABYTE;
/// The networks of a thread that reads bibs, with a share of those of the other stages ([`ThreadCounts::for_cores`]). With 2
/// cores these, the base and the budgets are 776 MB, where peaks of 461 to 728 MB were measured (`bench cpu`).
const READER_BYTES: u64 = 400 * MEGABYTE;

/// Where control groups are: those of version 2, and those of memory in version 1.
const GROUPS: &str = "sys/fs/cgroup";
const MEMORY_GROUPS: &str = "sys/fs/cgroup/memory";

/// Warns in the log where this process may need more memory than it may use.
pub fn warn_if_short(config: &Config, role: Role) {
    let Some(limit) = MemoryLimit::read(Path::new("/")) else { return };
    let need = Need::new(config, role);
    if need.bytes() > limit.bytes {
        let (need_mb, limit_mb, limit_from) = (need.megabytes(), limit.megabytes(), limit.file.display());
        tracing::warn!(
            need_mb, limit_mb, %limit_from, megabytes = %need,
            "this process may need more memory than it may use: lower these settings, or raise the limit"
        );
    }
}

/// Says how much memory may be used, and what role `all`, which needs most, may need.
pub fn describe(config: &Config) -> String {
    describe_limit(config, MemoryLimit::read(Path::new("/")).as_ref())
}

fn describe_limit(config: &Config, limit: Option<&MemoryLimit>) -> String {
    let Some(limit) = limit else {
        return "not known: neither a control group nor /proc/meminfo says how much may be used".to_owned();
    };
    let [all, serve, work] = [Role::All, Role::Serve, Role::Work].map(|role| Need::new(config, role));
    let (may_use, file) = (limit.megabytes(), limit.file.display());
    let [need, serve, work] = [&all, &serve, &work].map(Need::megabytes);
    if all.bytes() <= limit.bytes {
        return format!("{may_use} MB may be used ({file}), the role all may need {need}");
    }
    format!(
        "WARNING: {may_use} MB may be used ({file}), and the role all may need {need} (serve {serve}, work {work}): {all}. \
         Lower these settings, or raise the limit"
    )
}

/// The most memory that this process may use.
struct MemoryLimit {
    bytes: u64,
    /// What says so.
    file: PathBuf,
}

impl MemoryLimit {
    /// Reads the smallest limit of the machine, of the process's control group, and of those that it is in. `root` is the root
    /// of the file system.
    fn read(root: &Path) -> Option<Self> {
        let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        let limits = group_files(root, &groups).into_iter().filter_map(|file| {
            // A group without a limit has `max`, in version 1 a number beyond all machines.
            let bytes = fs::read_to_string(&file).ok()?.trim().parse().ok()?;
            Some(Self { bytes, file })
        });
        limits.chain(Self::read_machine(root)).min_by_key(|limit| limit.bytes)
    }

    /// Reads the memory of the machine.
    fn read_machine(root: &Path) -> Option<Self> {
        let file = root.join("proc/meminfo");
        let text = fs::read_to_string(&file).ok()?;
        let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        let kibibytes: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(Self { bytes: kibibytes.saturating_mul(1024), file })
    }

    fn megabytes(&self) -> u64 {
        self.bytes / MEGABYTE
    }
}

/// The files with the limits of the control groups in these lines, and of those that they are in. In a container the paths may be
/// those of the machine, where its own group is the root.
fn group_files(root: &Path, groups: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in groups.lines() {
        // The number of the hierarchy, its controllers (none in version 2), the path of the group.
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (folder, name) = match controllers {
            "" => (GROUPS, "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                (MEMORY_GROUPS, "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let around = Path::new(path.trim_start_matches('/')).ancestors();
        files.extend(around.map(|group| root.join(folder).join(group).join(name)));
    }
    files
}

/// What a process of a role may need.
struct Need {
    /// What settings decide about, the largest first.
    parts: Vec<Part>,
}

/// A part of what a process may need, and the setting that makes it smaller.
struct Part {
    bytes: u64,
    setting: &'static str,
}

impl Need {
    fn new(config: &Config, role: Role) -> Self {
        let part = |setting, bytes| Part { bytes, setting };
        let mut parts = Vec::new();
        if role.has_api() {
            parts.push(part("PHOTOFINISH_FACE_INDEX_MB", config.settings.api.face_index_bytes));
        }
        if role.has_pipeline() {
            parts.extend([
                part("PHOTOFINISH_FILE_BUDGET_MB", config.capacity.file_budget_bytes as u64),
                part("PHOTOFINISH_PIXEL_BUDGET_MB", config.capacity.pixel_budget_bytes as u64),
                part("PHOTOFINISH_PROCESSING_THREADS", reader_count(config) * READER_BYTES),
                part("PHOTOFINISH_MAX_MEGAPIXELS", oversize_bytes(config)),
            ]);
        }
        parts.sort_by_key(|part| Reverse(part.bytes));
        Self { parts }
    }

    fn bytes(&self) -> u64 {
        self.parts.iter().fold(BASE_BYTES, |sum, part| sum.saturating_add(part.bytes))
    }

    fn megabytes(&self) -> u64 {
        self.bytes().div_ceil(MEGABYTE)
    }
}

impl fmt::Display for Need {
    /// The parts with their settings, in megabytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Part { bytes, setting } in &self.parts {
            write!(f, "{} for {setting}, ", bytes.div_ceil(MEGABYTE))?;
        }
        write!(f, "{} for all else", BASE_BYTES / MEGABYTE)
    }
}

/// The threads that read bibs. Which device is chosen shows only at the start: where none is demanded, those for the CPU count,
/// as with CUDA each of its fewer threads takes more. Through wgpu batches are single, and the threads those for the CPU.
fn reader_count(config: &Config) -> u64 {
    let cores = config.capacity.processing_threads;
    let threads = match config.settings.models.device.demanded() {
        None | Some(NetworkDevice::Cpu | NetworkDevice::Wgpu) => ThreadCounts::for_cores(cores),
        Some(NetworkDevice::Cuda) => ThreadCounts::for_device(cores),
    };
    threads.read as u64
}

/// What the largest photo takes while it is decoded, beyond the half of the pixel budget that it has. There is one at a time.
fn oversize_bytes(config: &Config) -> u64 {
    let storage = &config.settings.storage;
    let peak = storage.max_pixels.saturating_mul(MAX_BYTES_PER_PIXEL).saturating_add(storage.max_photo_bytes);
    peak.saturating_sub(config.capacity.pixel_budget_bytes as u64 / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::{Settings, variable};
    use crate::config::tests::config;

    const MEMINFO: &str = "MemTotal:       16000000 kB\nMemFree:        1000000 kB\n";

    /// The limit in a file system of these files, and the file that has it.
    fn read(files: &[(&str, &str)]) -> Option<(u64, String)> {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let file = root.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        let MemoryLimit { bytes, file } = MemoryLimit::read(root.path())?;
        Some((bytes, file.strip_prefix(root.path()).unwrap().display().to_string()))
    }

    fn found(bytes: u64, file: &str) -> Option<(u64, String)> {
        Some((bytes, file.to_owned()))
    }

    #[test]
    fn the_smallest_limit_of_a_group_and_those_around_it_counts() {
        let files = [
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "0::/pods/worker\n"),
            ("sys/fs/cgroup/pods/worker/memory.max", "max\n"),
            ("sys/fs/cgroup/pods/memory.max", "3000000000\n"),
            ("sys/fs/cgroup/memory.max", "4000000000\n"),
        ];
        assert_eq!(read(&files), found(3_000_000_000, "sys/fs/cgroup/pods/memory.max"));
        assert_eq!(read(&files[..3]), found(16_384_000_000, "proc/meminfo"));
        let files = [files[0], files[1], files[4]];
        assert_eq!(read(&files), found(4_000_000_000, "sys/fs/cgroup/memory.max"), "a container's root");
        let files = [files[0], ("proc/self/cgroup", "0::/\n"), files[2]];
        assert_eq!(read(&files), found(4_000_000_000, "sys/fs/cgroup/memory.max"));
    }

    #[test]
    fn limits_of_version_1_count_too() {
        let groups = "5:cpu,cpuacct:/a\n4:hugetlb,memory:/a/b\n1:name=systemd:/\n0::/\n";
        let files = [
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", groups),
            ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "2000000000\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        let file = "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes";
        assert_eq!(read(&files), found(2_000_000_000, file));
        let files = [files[0], files[1], files[3]];
        assert_eq!(read(&files), found(16_384_000_000, "proc/meminfo"));
    }

    #[test]
    fn what_cannot_be_read_is_no_limit() {
        assert_eq!(read(&[]), None);
        let files = [("proc/meminfo", "MemTotal: many\n"), ("proc/self/cgroup", "0::/\nnonsense\n:\n")];
        assert_eq!(read(&files), None);
        let files = [("proc/self/cgroup", "0::/../..\n"), ("sys/fs/cgroup/memory.max", "-1\n")];
        assert_eq!(read(&files), None);
    }

    const SETTINGS: [(&str, &str); 5] = [
        ("PHOTOFINISH_PROCESSING_THREADS", "4"),
        ("PHOTOFINISH_FILE_BUDGET_MB", "128"),
        ("PHOTOFINISH_PIXEL_BUDGET_MB", "224"),
        ("PHOTOFINISH_FACE_INDEX_MB", "1024"),
        ("PHOTOFINISH_MAX_MEGAPIXELS", "200"),
    ];

    fn need_of(settings: &[(&str, &str)], role: Role) -> u64 {
        Need::new(&config(settings).unwrap(), role).megabytes()
    }

    #[test]
    fn each_setting_that_is_named_makes_the_need_of_its_role_smaller() {
        let [all, serve, work] = [Role::All, Role::Serve, Role::Work].map(|role| need_of(&SETTINGS, role));
        // The largest photo: 1800, and 50 of its file, of which 112 are in the budget.
        assert_eq!(work, 200 + 128 + 224 + 2 * 400 + 1850 - 112);
        assert_eq!((serve, all), (1224, work + 1024));
        // What the chart's limits, of 3 GiB, are meant for.
        assert!(work < 3221 && serve < 3221);
        let text = Need::new(&config(&SETTINGS).unwrap(), Role::All).to_string();
        for (i, (name, _)) in SETTINGS.iter().enumerate() {
            assert!(text.contains(name) && Settings::arguments().iter().any(|arg| variable(arg) == *name));
            let mut lower = SETTINGS;
            lower[i].1 = "2";
            assert!(need_of(&lower, Role::All) < all, "{name}");
        }
        let on_gpu = [SETTINGS[0], ("PHOTOFINISH_DEVICE", "cuda")];
        assert_eq!(reader_count(&config(&[("PHOTOFINISH_PROCESSING_THREADS", "64")]).unwrap()), 32);
        assert_eq!(reader_count(&config(&on_gpu).unwrap()), 2);
        for (device, readers) in [("cpu", 32), ("wgpu", 32), ("cuda", 4)] {
            let given = [("PHOTOFINISH_PROCESSING_THREADS", "64"), ("PHOTOFINISH_DEVICE", device)];
            assert_eq!(reader_count(&config(&given).unwrap()), readers, "{device}");
        }
    }

    #[test]
    fn a_limit_that_is_too_low_is_named_with_the_need_and_the_settings() {
        let config = config(&SETTINGS).unwrap();
        let need = Need::new(&config, Role::All).bytes();
        let describe = |bytes| describe_limit(&config, Some(&MemoryLimit { bytes, file: "/limit".into() }));
        assert_eq!(describe(need), "4114 MB may be used (/limit), the role all may need 4114");
        let text = describe(need - MEGABYTE);
        let expected = "WARNING: 4113 MB may be used (/limit), and the role all may need 4114 (serve 1224, work 3090): \
                        1738 for PHOTOFINISH_MAX_MEGAPIXELS, 1024 for PHOTOFINISH_FACE_INDEX_MB, 800 for";
        assert!(text.starts_with(expected), "{text}");
        assert!(describe_limit(&config, None).starts_with("not known"));
    }
}
