//! The structure of the codebase, as ordinary tests: which crate, folder and file may import which, how long files and
//! functions may grow, what signatures look like, what must not be in the repository, and that documents, charts and images
//! name only what exists.

#![forbid(unsafe_code)]

#[cfg(test)]
mod content;
#[cfg(test)]
mod dependencies;
#[cfg(test)]
mod deployment;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod imports;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod signatures;
#[cfg(test)]
mod sizes;
#[cfg(test)]
mod source;
