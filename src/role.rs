//! The role of a process: API and pipeline, API only, or pipeline only.

use std::fmt;

/// What a process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// API and pipeline.
    All,
    /// API only.
    Serve,
    /// Pipeline only.
    Work,
}

impl Role {
    /// The subcommand that starts it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Serve => "serve",
            Self::Work => "work",
        }
    }

    /// Whether the process responds to API requests.
    pub fn has_api(self) -> bool {
        self != Self::Work
    }

    /// Whether the process reads photos.
    pub fn has_pipeline(self) -> bool {
        self != Self::Serve
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
