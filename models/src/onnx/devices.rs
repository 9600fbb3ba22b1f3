//! Which device is used, of those that were asked for.

use std::fmt;

use crate::traits::ModelError;

/// The device an operator configures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceChoice {
    /// CUDA if it is available, else a GPU with Vulkan, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// An NVIDIA GPU; an error if there is none.
    Cuda,
    /// A GPU with Vulkan, or, since it is demanded, software that is one; an error if there is none.
    Wgpu,
}

/// The device that networks run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkDevice {
    /// The CPU.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
    /// A GPU with Vulkan.
    Wgpu,
}

impl DeviceChoice {
    /// The devices that may be chosen, in the order in which they are tried.
    pub fn candidates(self) -> &'static [NetworkDevice] {
        match self {
            Self::Auto => &[NetworkDevice::Cuda, NetworkDevice::Wgpu, NetworkDevice::Cpu],
            Self::Cpu => &[NetworkDevice::Cpu],
            Self::Cuda => &[NetworkDevice::Cuda],
            Self::Wgpu => &[NetworkDevice::Wgpu],
        }
    }

    /// The one device that is demanded; `None` where any may be chosen.
    pub fn demanded(self) -> Option<NetworkDevice> {
        if let [device] = self.candidates() { Some(*device) } else { None }
    }
}

impl From<NetworkDevice> for DeviceChoice {
    fn from(device: NetworkDevice) -> Self {
        match device {
            NetworkDevice::Cpu => Self::Cpu,
            NetworkDevice::Cuda => Self::Cuda,
            NetworkDevice::Wgpu => Self::Wgpu,
        }
    }
}

impl fmt::Display for NetworkDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Wgpu => "wgpu",
        })
    }
}

/// A device that was looked at and not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The device.
    pub device: NetworkDevice,
    /// Why, in a sentence.
    pub reason: String,
}

/// The device in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenDevice {
    /// Its kind.
    pub device: NetworkDevice,
    /// Its name.
    pub name: String,
    /// Those that would have come first.
    pub refusals: Vec<Refusal>,
}

/// Chooses a device. `probe` runs something on one, with software in the place of a GPU only where its second argument
/// says so, and returns the device's name or why it cannot be used.
///
/// # Errors
/// `Device` when the one demanded cannot be used.
pub fn choose(
    choice: DeviceChoice,
    mut probe: impl FnMut(NetworkDevice, bool) -> Result<String, String>,
) -> Result<ChosenDevice, ModelError> {
    if let Some(device) = choice.demanded() {
        let name = probe(device, true)
            .map_err(|detail| ModelError::Device { device: device.to_string(), detail })?;
        return Ok(ChosenDevice { device, name, refusals: Vec::new() });
    }
    let mut refusals = Vec::new();
    for &device in choice.candidates() {
        match probe(device, false) {
            Ok(name) => return Ok(ChosenDevice { device, name, refusals }),
            Err(reason) => refusals.push(Refusal { device, reason }),
        }
    }
    let reasons: Vec<String> = refusals.iter().map(Refusal::to_string).collect();
    Err(ModelError::Device { device: "auto".into(), detail: reasons.join("; ") })
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} refused: {}", self.device, self.reason)
    }
}

impl fmt::Display for ChosenDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.device, self.name)?;
        self.refusals.iter().try_for_each(|refusal| write!(f, "; {refusal}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_takes_the_first_that_works_and_keeps_the_reasons_of_others() {
        let probe = |device, allow_software: bool| match device {
            NetworkDevice::Cuda => Err("no driver".to_owned()),
            NetworkDevice::Wgpu if !allow_software => Err("only software".to_owned()),
            _ => Ok("it".to_owned()),
        };
        let chosen = choose(DeviceChoice::Auto, probe).unwrap();
        assert_eq!(chosen.device, NetworkDevice::Cpu);
        assert_eq!(chosen.to_string(), "cpu (it); cuda refused: no driver; wgpu refused: only software");
        assert_eq!(choose(DeviceChoice::Wgpu, probe).unwrap().device, NetworkDevice::Wgpu);
    }

    #[test]
    fn a_device_that_is_demanded_and_cannot_be_used_is_an_error() {
        let error = choose(DeviceChoice::Cuda, |_, _| Err("no driver".to_owned())).unwrap_err();
        assert!(error.to_string().contains("no driver"), "{error}");
        assert!(choose(DeviceChoice::Auto, |_, _| Err("no".to_owned())).is_err());
    }
}
