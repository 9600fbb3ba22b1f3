//! What an error of the runtime means. It passes on the text of its providers, and no code.

use crate::onnx::runtime::NetworkDevice;
use crate::traits::ModelError;

/// Before the number of an error of the CUDA runtime.
const CUDA_FAILURE: &str = "CUDA failure ";

/// The number of the CUDA runtime for a lack of memory (`cudaErrorMemoryAllocation`).
const CUDA_OUT_OF_MEMORY: u32 = 2;

/// Numbers after which the context of the device is unusable: devices unavailable, no device, uncorrectable errors of memory
/// and of NVLink, contained hardware error, illegal address, launch timed out, destroyed context, failed assertion, hardware
/// stack error, illegal instruction, misaligned address, invalid address space, invalid program counter, launch failure, leaked
/// tensor memory, client ended by MPS, external device, unknown ("CUDA Runtime API", data type `cudaError_t`).
const CUDA_LOST: [u32; 19] =
    [46, 100, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911, 999];

/// What allocators say: ONNX Runtime's arena, cuBLAS and cuDNN, cuDNN 9, Dawn.
const NO_MEMORY: [&str; 6] = [
    "out of memory",
    "failed to allocate memory",
    "alloc_failed",
    "allocation_failed",
    "out-of-memory",
    "available memory of",
];

/// What Dawn says of a device that is gone.
const LOST: [&str; 4] = ["device lost", "device is lost", "device was lost", "vk_error_device_lost"];

/// Returns the error of a run of the network `name` on a device, of which the runtime says `detail`.
pub(super) fn classify(name: &str, device: NetworkDevice, detail: String) -> ModelError {
    let text = detail.to_lowercase();
    let says =
        |phrases: &[&str]| device != NetworkDevice::Cpu && phrases.iter().any(|phrase| text.contains(phrase));
    let number = cuda_failure(&detail);
    if number.is_some_and(|number| CUDA_LOST.contains(&number)) || says(&LOST) {
        return ModelError::Device { device: device.to_string(), detail };
    }
    if number == Some(CUDA_OUT_OF_MEMORY) || says(&NO_MEMORY) {
        return ModelError::OutOfMemory { name: name.to_owned(), detail };
    }
    ModelError::Inference { name: name.to_owned(), detail }
}

/// Returns the error of loading the network `name` on a device, of which the runtime says `detail`. A file is loaded by
/// copying it to the device, so that the first to fail on a lost device is often a load.
pub(super) fn classify_load(name: &str, device: NetworkDevice, detail: String) -> ModelError {
    match classify(name, device, detail) {
        ModelError::Inference { name, detail } => ModelError::File { name, detail },
        error => error,
    }
}

fn cuda_failure(detail: &str) -> Option<u32> {
    let (_, rest) = detail.split_once(CUDA_FAILURE)?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(device: NetworkDevice, detail: &str) -> ModelError {
        classify("net", device, detail.to_owned())
    }

    #[test]
    fn a_lack_of_memory_is_told_from_a_lost_device_and_from_other_failures() {
        use NetworkDevice::{Cuda, Wgpu};
        for (device, text) in [
            (Cuda, "CUDA failure 2: out of memory ; GPU=0 ; hostname=a ; expr=cudaMalloc"),
            (
                Cuda,
                "Non-zero status code returned while running Conv node. Failed to allocate memory for requested buffer of size 9",
            ),
            (Cuda, "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED"),
            (Cuda, "CUDNN failure 4004: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ; GPU=0"),
            (Wgpu, "WebGPU validation failed. Out of memory"),
        ] {
            assert!(matches!(of(device, text), ModelError::OutOfMemory { .. }), "{text}");
        }
        for (device, text) in [
            (Cuda, "CUDA failure 719: unspecified launch failure ; GPU=0"),
            (Cuda, "CUDA failure 700: an illegal memory access was encountered"),
            (Cuda, "CUDA failure 220: uncorrectable NVLink error detected during the execution"),
            (Cuda, "CUDA failure 226: Invalid access of peer GPU memory over nvlink or a hardware error"),
            (Cuda, "CUDA failure 709: context is destroyed"),
            (Cuda, "CUDA failure 721: tensor memory not completely freed"),
            (Cuda, "CUDA failure 810: MPS client terminated ; GPU=0"),
            (Wgpu, "Device was lost: a valid external Instance reference no longer exists"),
        ] {
            assert!(matches!(of(device, text), ModelError::Device { .. }), "{text}");
        }
        assert!(matches!(of(Cuda, "CUDA failure 1: invalid argument"), ModelError::Inference { .. }));
        assert!(matches!(of(Cuda, "Got invalid dimensions for input"), ModelError::Inference { .. }));
    }

    #[test]
    fn a_load_fails_by_the_device_or_by_the_file() {
        let load = |detail: &str| classify_load("net", NetworkDevice::Cuda, detail.to_owned());
        let lost = "Exception during initialization: CUDA failure 719: unspecified launch failure ; GPU=0";
        assert!(matches!(load(lost), ModelError::Device { .. }));
        let full = "Exception during initialization: CUDA failure 2: out of memory ; GPU=0";
        assert!(matches!(load(full), ModelError::OutOfMemory { .. }));
        let full = "Exception during initialization: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED";
        assert!(matches!(load(full), ModelError::OutOfMemory { .. }));
        let damaged = load("Protobuf parsing failed.");
        assert!(matches!(damaged, ModelError::File { .. }));
        assert_eq!(damaged.to_string(), "model net: Protobuf parsing failed.");
    }

    #[test]
    fn a_processor_is_never_lost() {
        let text = "Failed to allocate memory for requested buffer of size 9";
        assert!(matches!(of(NetworkDevice::Cpu, text), ModelError::Inference { .. }));
    }
}
