//! The order of the house, as ordinary tests: who may import whom, how long files and functions may grow, what must not
//! be in the repository, that the architecture's page names what there is, and that deployments name what there is.

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
mod sizes;
#[cfg(test)]
mod source;
