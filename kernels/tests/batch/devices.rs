//! The devices of the tests, and what they compute on.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use photofinish_cuda::libraries;
use photofinish_kernels::device::Device;
use photofinish_kernels::gpu::vulkan::{Adapters, Vulkan};
use photofinish_kernels::gpu::{Gpu, GpuError, Program, Resident};
use photofinish_kernels::image::frame::Picture;

use crate::compile::wgsl_group;
use crate::on_cpu::OnCpu;

/// Where set-up put Mesa's software Vulkan. The loader finds the driver by `VK_DRIVER_FILES`.
const VULKAN: &str = "PHOTOFINISH_TEST_VULKAN";

/// Returns the folder that a variable names; prints that the test is skipped where it names none.
///
/// # Panics
/// When it is required.
#[expect(clippy::disallowed_methods, reason = "the environment tells tests where set-up put its files")]
pub fn find_folder(variable: &str) -> Option<PathBuf> {
    let folder = std::env::var_os(variable).map(PathBuf::from).filter(|folder| folder.is_dir());
    let is_required = std::env::var("REQUIRE_SHARED").is_ok_and(|value| !matches!(value.as_str(), "" | "0"));
    assert!(folder.is_some() || !is_required, "REQUIRE_SHARED=1, and {variable} names no folder");
    if folder.is_none() {
        println!("SKIPPED in part: {variable} names no folder; `cargo xtask setup --all` fetches it");
    }
    folder
}

/// All devices, opened once.
pub fn list() -> &'static [Arc<dyn Gpu>] {
    static DEVICES: OnceLock<Vec<Arc<dyn Gpu>>> = OnceLock::new();
    DEVICES.get_or_init(|| {
        let mut devices: Vec<Arc<dyn Gpu>> = vec![Arc::new(OnCpu::compile())];
        if let Some(folder) = find_folder(VULKAN) {
            for (library, reason) in libraries::preload_all(&[folder]) {
                println!("not opened: {}: {reason}", library.display());
            }
            devices.push(Arc::new(Vulkan::open(Adapters::Any).expect("no error")));
        }
        devices
    })
}

/// Runs a comparison on each device, and on each with buffers of at most `small` bytes.
pub fn for_each(small: usize, compare: impl Fn(&Device)) {
    for gpu in list() {
        for limit in [gpu.max_buffer_bytes(), small] {
            println!("{}, buffers of {limit} bytes", gpu.name());
            compare(&Device::Gpu(Arc::new(Limited { gpu: Arc::clone(gpu), limit })));
        }
    }
}

/// A device with smaller buffers.
#[derive(Debug)]
pub struct Limited {
    gpu: Arc<dyn Gpu>,
    limit: usize,
}

impl Gpu for Limited {
    fn name(&self) -> String {
        self.gpu.name()
    }

    fn max_buffer_bytes(&self) -> usize {
        self.limit
    }

    fn upload(&self, bytes: &[u8]) -> Result<Resident, GpuError> {
        self.gpu.upload(bytes)
    }

    fn run(&self, program: &Program<'_>) -> Result<Vec<Vec<u8>>, GpuError> {
        for buffer in &program.buffers {
            // Tables of weights are small beside pictures; the smallest limits of tests are smaller than those.
            let is_table = buffer.device_bytes() <= 64 << 10;
            assert!(is_table || buffer.device_bytes() <= self.limit, "{} bytes", buffer.device_bytes());
        }
        for step in &program.steps {
            // With other threads the CUDA C++ would compute other places than the WGSL, whose size is in its text.
            let group = wgsl_group(step.kernel.source, step.kernel.entry);
            assert_eq!(step.kernel.group, group, "{}", step.kernel.entry);
        }
        self.gpu.run(program)
    }
}

/// Numbers that look random and are the same in every run.
pub struct Noise(u32);

impl Noise {
    pub fn new(seed: u32) -> Self {
        Self(seed.wrapping_mul(2_654_435_761) | 1)
    }

    pub fn word(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }

    /// From `low` to `high`.
    pub fn number(&mut self, low: f32, high: f32) -> f32 {
        low + (self.word() >> 8) as f32 / (1 << 24) as f32 * (high - low)
    }

    /// Smooth shapes with grain: flat parts and edges, as photos have them.
    pub fn picture(&mut self, width: u32, height: u32) -> Picture {
        let (fx, fy) = (self.number(0.02, 0.3), self.number(0.02, 0.3));
        let pixels = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        let mut bytes = Vec::with_capacity((width * height * 3) as usize);
        for (x, y) in pixels {
            let grain = self.word();
            let level = ((x as f32 * fx).sin() * (y as f32 * fy).cos() * 100.0 + 128.0) as u32;
            bytes.extend([0, 8, 16].map(|shift| (level + (grain >> shift) % 28) as u8));
        }
        Picture::new(bytes, width, height).expect("no error")
    }
}
