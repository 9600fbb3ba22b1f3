//! What the driver of an NVIDIA GPU says about it.

use std::process::Command;

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
