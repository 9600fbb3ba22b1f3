//! What the two memory allocators of this process are told. Both read their settings from the environment before
//! `main` runs, so a process that was started without them starts itself anew with them, under the same process id.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A setting that the operator gave stands.
///
/// ONNX Runtime and OpenVINO allocate with the C library, which opens an arena for each thread that finds the others
/// in use, and each arena keeps the largest tensors that it ever held. Our own code allocates with mimalloc, which
/// keeps what was freed for a while in case it is wanted again; the buffers of the next photo are of another size.
const MALLOC_SETTINGS: [(&str, &str); 3] =
    [("MALLOC_ARENA_MAX", "2"), ("MIMALLOC_PURGE_DELAY", "50"), ("MIMALLOC_ARENA_EAGER_COMMIT", "0")];

/// Returns when the settings are in force, or cannot be brought in force: the service then takes more memory.
#[expect(
    clippy::disallowed_methods,
    reason = "asks which of the allocators' own variables are set, not for a setting"
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
    // Only ever returns with an error.
    let error = Command::new(program).arg0(name).args(arguments).envs(missing).exec();
    eprintln!("photofinish: goes on with the allocators' own settings: {error}");
}
