//! Stop signals of the process, the watch channel that passes them on to its tasks, and the end of the process.

use std::future::Future;
use std::io::Write;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// SIGTERM and SIGINT. Created before anything else starts: process 1 of a container has no default handlers, so a signal
/// that arrives while models are loading would be lost.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Installs the handlers.
    ///
    /// # Errors
    /// When the operating system refuses a handler.
    pub fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("listening for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("listening for SIGINT")?,
        })
    }

    /// Waits for a signal; returns at once when one has arrived since [`Self::listen`].
    pub async fn wait(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Runs `work` to its end, or drops it and returns `None` when a signal arrives first.
    pub async fn run_until_signal<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            output = work => Some(output),
            () = self.wait() => None,
        }
    }
}

/// Ends the process: with code 0, or with code 1 after printing the error.
///
/// Unlike a return from `main` this runs no destructors of libraries and unloads none. Threads may still run in them that
/// nothing can stop, such as one in a network that hangs; such a thread crashed the process at its end. All that must not
/// be lost has been written by now: the store is closed, logs are not buffered, traces are exported.
pub fn end_process(result: anyhow::Result<()>) -> ! {
    let code = match result {
        Ok(()) => 0,
        Err(error) => {
            print_error(&error);
            1
        }
    };
    // Fails when nobody reads the output any more, which is no reason not to end.
    drop(std::io::stdout().flush());
    signal_hook::low_level::exit(code)
}

/// Prints an error with its causes, as the last words of a process.
pub fn print_error(error: &anyhow::Error) {
    eprintln!("photofinish: {error:#}");
}

/// Waits until `stopped` becomes true.
pub async fn wait_until_stopped(mut stopped: watch::Receiver<bool>) {
    // Fails only when the sender is dropped, which also means that the service has stopped.
    drop(stopped.wait_for(|stopped| *stopped).await);
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread_local;

    use super::*;

    /// How the process of a test is to end.
    const END: &str = "PHOTOFINISH_TEST_END";
    const DESTROYED: &str = "a destructor ran";

    /// Prints when it is destroyed: the C library does that in its `exit`, as it does for what libraries have registered.
    struct Announced;

    impl Drop for Announced {
        fn drop(&mut self) {
            println!("{DESTROYED}");
        }
    }

    thread_local! {
        static OF_LIBRARY: Announced = const { Announced };
    }

    /// Runs the test below in a process of its own, which ends as it is told.
    fn end_child(end: &str) -> (Option<i32>, String) {
        let this = std::env::current_exe().unwrap();
        let test = "shutdown::tests::the_end_of_the_process_runs_nothing_of_libraries";
        let output =
            Command::new(this).args(["--exact", test, "--nocapture"]).env(END, end).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "how the process of this test ends, no setting")]
    fn the_end_of_the_process_runs_nothing_of_libraries() {
        if let Some(end) = std::env::var_os(END) {
            OF_LIBRARY.with(|_| ());
            print!("last words");
            match end.to_str() {
                Some("exit") => std::process::exit(0),
                Some("success") => end_process(Ok(())),
                _ => end_process(Err(anyhow::anyhow!("failed"))),
            }
        }
        let (code, printed) = end_child("exit");
        assert!(code == Some(0) && printed.contains(DESTROYED), "no difference would be seen: {printed}");
        for (end, expected) in [("success", 0), ("failure", 1)] {
            let (code, printed) = end_child(end);
            assert_eq!(code, Some(expected), "{printed}");
            assert!(printed.contains("last words") && !printed.contains(DESTROYED), "{printed}");
        }
    }
}
