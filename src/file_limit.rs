//! The number of files that this process may have open: connections, photos being uploaded, the database.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit of open files.
pub struct FileLimit {
    /// Before it was raised.
    pub inherited: u64,
    /// Now.
    pub current: u64,
    /// Why it could not be raised.
    pub error: Option<io::Error>,
}

impl FileLimit {
    /// Raises the limit as far as a process may (to its hard limit). Systems start processes with 1,024, for programs of a
    /// time when more would have broken them.
    pub fn raise() -> Self {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let inherited = current.unwrap_or(u64::MAX);
        let raised = if current == maximum {
            Ok(())
        } else {
            setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        };
        let current = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Self { inherited, current, error: raised.err().map(io::Error::from) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_to_the_hard_limit() {
        let limit = FileLimit::raise();
        assert!(limit.error.is_none() && limit.current >= limit.inherited);
        assert_eq!(Some(limit.current), getrlimit(Resource::Nofile).maximum);
        assert_eq!(FileLimit::raise().inherited, limit.current);
    }
}
