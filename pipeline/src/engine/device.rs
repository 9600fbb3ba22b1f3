//! What is told of a device to those who do not use it: its name, and whether this process can still use it.

use photofinish_models::traits::ModelFactory;

use crate::engine::metrics as names;

/// What a process does on a device, as the label `work` of its gauge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// The pipeline.
    Photos,
    /// Examining selfies.
    Selfies,
}

impl Work {
    fn as_str(self) -> &'static str {
        match self {
            Self::Photos => "photos",
            Self::Selfies => "selfies",
        }
    }
}

/// Returns the name of a device, or its number where it has none.
pub(crate) fn name_device(models: &dyn ModelFactory, number: usize) -> String {
    models.device_name().unwrap_or_else(|| format!("device {number}"))
}

/// Shows that the device is used; an alert sees no change in a gauge that begins at 1.
pub(crate) fn show_usable(device: &str, work: Work) {
    metrics::gauge!(names::DEVICE_LOST, "device" => device.to_owned(), "work" => work.as_str()).set(0.0);
}

/// Shows that this process cannot use the device any more.
pub(crate) fn show_lost(device: &str, work: Work) {
    metrics::gauge!(names::DEVICE_LOST, "device" => device.to_owned(), "work" => work.as_str()).set(1.0);
}
