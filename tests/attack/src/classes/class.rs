//! What a class of attacks is.

use crate::findings::Findings;
use crate::site::{Extent, Site};

/// A setting of the service, `PHOTOFINISH_*`.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its variable.
    pub name: &'static str,
    /// Its value.
    pub value: &'static str,
}

/// A class of attacks.
pub struct Class {
    /// Its name on the command line and in the table.
    pub name: &'static str,
    /// What is done, for the notes of the report.
    pub description: &'static str,
    /// Settings of the service that make the attack short.
    pub settings: fn(Extent) -> Vec<Setting>,
    /// Whether the attack stops the service, so that no client can work beside it.
    pub stops_service: bool,
    /// Attacks. An error means that the attack could not go on.
    pub run: fn(&Site, &Findings) -> anyhow::Result<()>,
}

/// The service's own settings.
pub(super) fn no_settings(_: Extent) -> Vec<Setting> {
    Vec::new()
}
