//! Whether there is an NVIDIA GPU, and what its driver says about it.

use std::path::Path;
use std::process::Command;

/// The device of a GPU: NVIDIA's, and that of WSL2, which it has for the GPUs of others too.
const DEVICES: [&str; 2] = ["dev/nvidia0", "dev/dxg"];
/// What the kernel module says of itself; WSL2 has none.
const MODULE: &str = "proc/driver/nvidia/version";

/// Whether this machine has an NVIDIA GPU with a driver. `cargo xtask gpu-check` decides in the same way.
pub fn has_nvidia_gpu() -> bool {
    let root = Path::new("/");
    describe_gpu().is_some() || root.join(MODULE).exists() || (has_device(root) && has_library())
}

fn has_device(root: &Path) -> bool {
    DEVICES.iter().any(|device| root.join(device).exists())
}

fn has_library() -> bool {
    let listed = Command::new("ldconfig").arg("-p").output();
    listed.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("libcuda.so.1"))
}

/// Describes the first GPU: name, driver, memory. `None` where there is no NVIDIA driver.
pub fn describe_gpu() -> Option<String> {
    let answer = query("name,driver_version,memory.total")?;
    let fields: Vec<&str> = answer.split(',').map(str::trim).collect();
    let [name, driver, memory] = fields.as_slice() else { return None };
    Some(format!("{name}, driver {driver}, {memory}"))
}

/// The memory of the first GPU that is in use by all processes, in bytes. `None` where nothing says it.
pub fn read_device_memory() -> Option<u64> {
    let answer = query("memory.used")?;
    let megabytes: u64 = answer.split_whitespace().next()?.parse().ok()?;
    Some(megabytes << 20)
}

fn query(fields: &str) -> Option<String> {
    let mut command = Command::new("nvidia-smi");
    command.arg(format!("--query-gpu={fields}")).arg("--format=csv,noheader");
    let output = command.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_of_wsl2_is_one_too() {
        for device in ["dev/nvidia0", "dev/dxg"] {
            let root = tempfile::tempdir().unwrap();
            assert!(!has_device(root.path()));
            std::fs::create_dir(root.path().join("dev")).unwrap();
            std::fs::write(root.path().join(device), "").unwrap();
            assert!(has_device(root.path()), "{device}");
        }
    }
}
