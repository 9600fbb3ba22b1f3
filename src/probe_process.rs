//! Runs a process that tries a device or measures networks, for a limited time. Whatever it does, its answer is a name or a
//! reason in a sentence:
//! a provider may end its process by a signal, a library may print without end, a driver may hang.

use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Pause between two looks at a process.
const POLL_PAUSE: Duration = Duration::from_millis(20);

/// How long a process that is killed may take to end, and its output after it has ended. A driver may keep the one, and a
/// process of its own the other.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// The last bytes of each output that are kept.
const MAX_OUTPUT: usize = 64 << 10;

/// Longest name or reason that is kept, in characters.
const MAX_REASON: usize = 400;

/// The exit code of a Rust program that panicked.
const PANICKED: i32 = 101;

/// What a process that tries a device prints.
#[derive(Debug)]
pub struct Answer {
    /// What it printed, whether or not it succeeded.
    pub printed: String,
    /// The name that it printed last, or why there is none, in a sentence.
    pub name: Result<String, String>,
}

/// Runs a command to its end, and returns what it prints and the name in it. Of its standard error, the sentence after the
/// last `marker` is the reason.
pub fn run(command: &mut Command, marker: &str, limit: Duration) -> Answer {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let reason = format!("the process that tries it does not start: {error}");
            return Answer { printed: String::new(), name: Err(reason) };
        }
    };
    let stdout = child.stdout.take().map(Output::read);
    let stderr = child.stderr.take().map(Output::read);
    let ended = wait(&mut child, limit);
    let deadline = Instant::now() + END_PATIENCE;
    let text = |output: Option<Output>| output.map(|output| output.text(deadline)).unwrap_or_default();
    let (printed, stderr) = (text(stdout), text(stderr));
    let name = ended.and_then(|status| {
        if !status.success() {
            return Err(describe_failure(status, &stderr, marker));
        }
        let name = last_line(&printed).map(shorten);
        name.ok_or_else(|| "the process that tries it has not named it".to_owned())
    });
    Answer { printed, name }
}

/// Waits for the end of a process, and kills it after `limit`.
fn wait(child: &mut Child, limit: Duration) -> Result<ExitStatus, String> {
    let failed = |error: std::io::Error| format!("the process that tries it cannot be waited for: {error}");
    if let Some(status) = wait_until(child, Instant::now() + limit).map_err(failed)? {
        return Ok(status);
    }
    child.kill().map_err(failed)?;
    // One that a driver holds in the kernel does not end: it is left behind.
    let ended = wait_until(child, Instant::now() + END_PATIENCE).map_err(failed)?;
    let left = if ended.is_none() { ", and its process cannot be killed" } else { "" };
    Err(format!("no answer within {} s{left}", limit.as_secs_f32()))
}

fn wait_until(child: &mut Child, deadline: Instant) -> std::io::Result<Option<ExitStatus>> {
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() >= deadline {
            return Ok(status);
        }
        std::thread::sleep(POLL_PAUSE);
    }
}

/// Says why a process ended without success.
fn describe_failure(status: ExitStatus, stderr: &str, marker: &str) -> String {
    let sentence = stderr.rsplit_once(marker).map(|(_, sentence)| sentence);
    let reason = shorten(sentence.or_else(|| last_line(stderr)).unwrap_or_default());
    match status.code() {
        Some(PANICKED) => format!("the process that tries it ended by a panic: {}", find_panic(stderr)),
        Some(_) if !reason.is_empty() => reason,
        _ if reason.is_empty() => format!("the process that tries it ended by {status}"),
        _ => format!("the process that tries it ended by {status}: {reason}"),
    }
}

/// Returns the first line of the first panic's message, which follows the line that names the place.
fn find_panic(stderr: &str) -> String {
    let mut lines = stderr.lines().skip_while(|line| !line.contains(" panicked at ")).skip(1);
    let message = lines.find(|line| !line.trim().is_empty());
    shorten(message.or_else(|| last_line(stderr)).unwrap_or("no message"))
}

fn last_line(text: &str) -> Option<&str> {
    text.lines().rfind(|line| !line.trim().is_empty())
}

/// Returns a text in one line, of at most [`MAX_REASON`] characters.
fn shorten(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(MAX_REASON).collect()
}

/// The end of what a process prints.
struct Output {
    kept: Arc<Mutex<Vec<u8>>>,
    /// Closed at the end.
    ended: Receiver<()>,
}

impl Output {
    /// Reads to the end in the background, so that a process that prints much does not wait for its pipe.
    fn read(mut pipe: impl Read + Send + 'static) -> Self {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let (at_end, ended) = sync_channel::<()>(0);
        let shared = Arc::clone(&kept);
        let read = move || {
            let _closed_at_the_end = at_end;
            let mut chunk = [0; 8 << 10];
            // What was read before an error is the message.
            while let Ok(count @ 1..) = pipe.read(&mut chunk) {
                let mut kept = shared.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&chunk[..count]);
                if kept.len() > 2 * MAX_OUTPUT {
                    let surplus = kept.len() - MAX_OUTPUT;
                    kept.drain(..surplus);
                }
            }
        };
        // A thread that does not start has closed the pipe and the channel.
        let _not_started = std::thread::Builder::new().name("probe-output".into()).spawn(read);
        Self { kept, ended }
    }

    /// Returns the last bytes, at `deadline` at the latest: a process that this one has started may keep the pipe open.
    fn text(self, deadline: Instant) -> String {
        // Nothing is ever sent: closed, or not in time.
        let _closed = self.ended.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept[kept.len().saturating_sub(MAX_OUTPUT)..]).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKER: &str = "device wgpu: ";
    const LONG: Duration = Duration::from_secs(60);

    fn run_shell(script: &str, limit: Duration) -> Result<String, String> {
        run(Command::new("sh").args(["-c", script]), MARKER, limit).name
    }

    /// Why a script gave no name.
    fn reason(script: &str) -> String {
        run_shell(script, LONG).unwrap_err()
    }

    #[test]
    fn the_last_line_is_the_name() {
        assert_eq!(run_shell("echo a library says this; echo llvmpipe", LONG).unwrap(), "llvmpipe");
        assert_eq!(run_shell("exit 0", LONG).unwrap_err(), "the process that tries it has not named it");
    }

    #[test]
    fn a_process_that_a_signal_ends_is_a_reason() {
        let text = reason("kill -SEGV $$");
        assert!(text.starts_with("the process that tries it ended by signal: 11 (SIGSEGV)"), "{text}");
        let text = reason("echo 'no adapter found' >&2; kill -ABRT $$");
        assert!(text.contains("(SIGABRT)") && text.ends_with(": no adapter found"), "{text}");
    }

    #[test]
    fn a_process_that_hangs_is_killed_and_a_reason() {
        let limit = Duration::from_millis(300);
        let start = Instant::now();
        let text = run(Command::new("sleep").arg("600"), MARKER, limit).name.unwrap_err();
        assert_eq!(text, "no answer within 0.3 s");
        // Also one that prints without end, of which only the last bytes are kept.
        assert_eq!(run_shell("exec yes flood", limit).unwrap_err(), text);
        assert!(start.elapsed() < LONG);
    }

    #[test]
    fn a_sentence_is_found_in_what_libraries_print() {
        let text = reason(
            "echo 'device wgpu: a library' >&2; echo 'photofinish: device wgpu: no  Vulkan\n driver' >&2; exit 1",
        );
        assert_eq!(text, "no Vulkan driver");
        assert_eq!(reason("echo one >&2; echo 'onnx runtime: too old' >&2; exit 1"), "onnx runtime: too old");
        let text = reason("exit 3");
        assert_eq!(text, "the process that tries it ended by exit status: 3");
    }

    #[test]
    fn a_panic_is_named_by_its_message() {
        let script = "echo 'a warning' >&2; printf \"\\nthread 'main' (7) panicked at src/a.rs:1:2:\\nno libcuda\\nnote: run with\\n\" >&2; exit 101";
        assert_eq!(reason(script), "the process that tries it ended by a panic: no libcuda");
        let text = reason("exit 101");
        assert_eq!(text, "the process that tries it ended by a panic: no message");
    }

    #[test]
    fn a_flood_is_cut() {
        let flood = "head -c 20000000 /dev/zero | tr '\\0' x";
        let text = reason(&format!("{flood} >&2; echo >&2; echo 'device wgpu: no driver' >&2; exit 1"));
        assert_eq!(text, "no driver");
        let text = reason(&format!("{{ echo 'device wgpu: first'; {flood}; }} >&2; exit 1"));
        assert_eq!(text, "x".repeat(MAX_REASON));
        let name = run_shell(flood, LONG).unwrap();
        assert_eq!(name, "x".repeat(MAX_REASON));
    }

    #[test]
    fn what_a_process_leaves_running_is_not_waited_for() {
        let start = Instant::now();
        assert_eq!(run_shell("sleep 40 & echo llvmpipe", LONG).unwrap(), "llvmpipe");
        assert!(start.elapsed() < Duration::from_secs(30), "it waited for the other process");
    }

    #[test]
    fn a_program_that_is_not_there_is_a_reason() {
        let text = run(&mut Command::new("/nowhere/program"), MARKER, LONG).name.unwrap_err();
        assert!(text.starts_with("the process that tries it does not start: "), "{text}");
    }
}
