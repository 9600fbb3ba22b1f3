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

/// A device in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedDevice {
    /// Its number among the NVIDIA GPUs that the driver shows; 0 for other devices.
    pub ordinal: usize,
    /// Its name.
    pub name: String,
}

/// The devices in use, all of one kind: several only of NVIDIA GPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenDevice {
    /// Their kind.
    pub device: NetworkDevice,
    /// At least one, in the order of their numbers.
    pub used: Vec<UsedDevice>,
    /// Those of this kind that do not work, and the kinds that would have come first.
    pub refusals: Vec<Refusal>,
}

/// Chooses a kind of device, and of it every one that works. `probe` runs something on each of a kind, with software in the
/// place of a GPU only where its second argument says so, and returns, by their numbers, their names or why they cannot be used.
///
/// # Errors
/// `Device` when none of the kind demanded can be used.
pub fn choose(
    choice: DeviceChoice,
    mut probe: impl FnMut(NetworkDevice, bool) -> Vec<Result<String, String>>,
) -> Result<ChosenDevice, ModelError> {
    let mut refusals = Vec::new();
    if let Some(device) = choice.demanded() {
        let used = take_those_that_work(device, probe(device, true), &mut refusals);
        if used.is_empty() {
            let reasons: Vec<String> = refusals.into_iter().map(|refusal| refusal.reason).collect();
            return Err(ModelError::Device { device: device.to_string(), detail: reasons.join("; ") });
        }
        return Ok(ChosenDevice { device, used, refusals });
    }
    for &device in choice.candidates() {
        let used = take_those_that_work(device, probe(device, false), &mut refusals);
        if !used.is_empty() {
            return Ok(ChosenDevice { device, used, refusals });
        }
    }
    let reasons: Vec<String> = refusals.iter().map(Refusal::to_string).collect();
    Err(ModelError::Device { device: "auto".into(), detail: reasons.join("; ") })
}

/// Returns the devices of a kind that work, and adds the others to those refused.
fn take_those_that_work(
    device: NetworkDevice,
    tried: Vec<Result<String, String>>,
    refusals: &mut Vec<Refusal>,
) -> Vec<UsedDevice> {
    let has_several = tried.len() > 1;
    let mut used = Vec::new();
    for (ordinal, outcome) in tried.into_iter().enumerate() {
        match outcome {
            Ok(name) => used.push(UsedDevice { ordinal, name }),
            Err(reason) if has_several => {
                refusals.push(Refusal { device, reason: format!("number {ordinal}: {reason}") });
            }
            Err(reason) => refusals.push(Refusal { device, reason }),
        }
    }
    used
}

impl ChosenDevice {
    /// The names of the devices in use; with their numbers where there are several, which may have the same name.
    pub fn names(&self) -> Vec<String> {
        match &self.used[..] {
            [UsedDevice { ordinal: 0, name }] => vec![name.clone()],
            used => used.iter().map(|UsedDevice { ordinal, name }| format!("{ordinal}: {name}")).collect(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} refused: {}", self.device, self.reason)
    }
}

impl fmt::Display for ChosenDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.device, self.names().join(", "))?;
        self.refusals.iter().try_for_each(|refusal| write!(f, "; {refusal}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_takes_the_first_that_works_and_keeps_the_reasons_of_others() {
        let probe = |device, allow_software: bool| match device {
            NetworkDevice::Cuda => vec![Err("no driver".to_owned())],
            NetworkDevice::Wgpu if !allow_software => vec![Err("only software".to_owned())],
            _ => vec![Ok("it".to_owned())],
        };
        let chosen = choose(DeviceChoice::Auto, probe).unwrap();
        assert_eq!(chosen.device, NetworkDevice::Cpu);
        assert_eq!(chosen.to_string(), "cpu (it); cuda refused: no driver; wgpu refused: only software");
        assert_eq!(choose(DeviceChoice::Wgpu, probe).unwrap().device, NetworkDevice::Wgpu);
    }

    #[test]
    fn a_device_that_is_demanded_and_cannot_be_used_is_an_error() {
        let refuse = |_, _| vec![Err("no driver".to_owned())];
        let error = choose(DeviceChoice::Cuda, refuse).unwrap_err();
        assert!(error.to_string().contains("no driver"), "{error}");
        assert!(choose(DeviceChoice::Auto, refuse).is_err());
    }

    #[test]
    fn all_devices_of_the_kind_that_work_are_used_and_named_by_their_numbers() {
        let probe = |device, _| match device {
            NetworkDevice::Cuda => {
                vec![Ok("H100".to_owned()), Err("all memory is taken".to_owned()), Ok("H100".to_owned())]
            }
            _ => panic!("there is a better one"),
        };
        for choice in [DeviceChoice::Auto, DeviceChoice::Cuda] {
            let chosen = choose(choice, probe).unwrap();
            assert_eq!(chosen.used.iter().map(|used| used.ordinal).collect::<Vec<_>>(), [0, 2]);
            let text = "cuda (0: H100, 2: H100); cuda refused: number 1: all memory is taken";
            assert_eq!(chosen.to_string(), text);
        }
        let second_alone = |_, _| vec![Err("it is lost".to_owned()), Ok("L4".to_owned())];
        assert_eq!(choose(DeviceChoice::Cuda, second_alone).unwrap().names(), ["1: L4"]);
        let none = |_, _| vec![Err("lost".to_owned()), Err("busy".to_owned())];
        let error = choose(DeviceChoice::Cuda, none).unwrap_err().to_string();
        assert!(error.contains("number 0: lost; number 1: busy"), "{error}");
    }
}
