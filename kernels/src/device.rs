//! Where kernels run. The same types exist in every build: asking for a device that is not there is an error with
//! a plain sentence, never a missing symbol.

/// What an operator can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// The processor.
    Cpu,
    /// Any GPU with a Vulkan driver.
    Wgpu,
    /// An NVIDIA GPU.
    Cuda,
}

impl std::fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Wgpu => "wgpu",
            Self::Cuda => "cuda",
        })
    }
}

/// A device that is open. Cheap to clone.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Device {
    /// The processor: each kernel runs on the thread that calls it.
    Cpu,
}

/// Why a device cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// This build has no kernels for it.
    #[error("this build has no kernels for {0}; use cpu")]
    NotBuilt(DeviceKind),
    /// This machine has no such device, or no driver for it.
    #[error("no {kind} device: {detail}")]
    NotFound {
        /// What was asked for.
        kind: DeviceKind,
        /// The driver's words.
        detail: String,
    },
}

impl Device {
    /// Opens a device.
    ///
    /// # Errors
    /// `NotBuilt` for a device that this build has no kernels for, `NotThere` for one that the machine lacks.
    pub fn open(kind: DeviceKind) -> Result<Self, DeviceError> {
        match kind {
            DeviceKind::Cpu => Ok(Self::Cpu),
            DeviceKind::Wgpu | DeviceKind::Cuda => Err(DeviceError::NotBuilt(kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_built_says_so() {
        assert!(Device::open(DeviceKind::Cpu).is_ok());
        for kind in [DeviceKind::Wgpu, DeviceKind::Cuda] {
            let error = Device::open(kind).unwrap_err();
            assert_eq!(error, DeviceError::NotBuilt(kind));
            assert!(error.to_string().contains(&kind.to_string()));
        }
    }
}
