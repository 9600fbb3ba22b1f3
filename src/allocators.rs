//! Settings of the two memory allocators of this process. Both read them from the environment before `main` runs, so a
//! process that was started without them executes itself again with them, under the same process id.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Variables and values; one that the operator set already is left alone.
///
/// ONNX Runtime and OpenVINO allocate with the C library, which opens an arena for each thread that finds the others in
/// use, and each arena keeps the memory of its largest tensors. Rust code allocates with mimalloc, which keeps freed
/// memory for a while for reuse; the buffers of the next photo have another size.
const MALLOC_SETTINGS: [(&str, &str); 3] =
    [("MALLOC_ARENA_MAX", "2"), ("MIMALLOC_PURGE_DELAY", "50"), ("MIMALLOC_ARENA_EAGER_COMMIT", "0")];

/// Executes the process again unless the settings are in its environment. Returns where that fails: the service then needs
/// more memory.
#[expect(
    clippy::disallowed_methods,
    reason = "reads the variables of the allocators, which are no settings of this program"
)]
pub fn reexec_with_malloc_settings() {
    let missing = MALLOC_SETTINGS.iter().filter(|(name, _)| env::var_os(name).is_none());
    let missing: Vec<_> = missing.copied().collect();
    if missing.is_empty() {
        return;
    }
    let mut arguments = env::args_os();
    let name = arguments.next().unwrap_or_default();
    let Ok(program) = env::current_exe() else { return };
    // Returns only on error.
    let error = Command::new(program).arg0(name).args(arguments).envs(missing).exec();
    eprintln!(
        "photofinish: failed to restart with settings for the allocators, continuing with their defaults: {error}"
    );
}
