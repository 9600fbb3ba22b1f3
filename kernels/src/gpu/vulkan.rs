//! Programs on Vulkan, through wgpu: any GPU with a driver for it, and Mesa's software device in tests.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::gpu::{Buffer, Gpu, GpuError, Kernel, Program, Resident, Step, padded_bytes};

/// The longest time that a program may take. A device that needs longer does not answer any more.
const MAX_RUN_TIME: Duration = Duration::from_mins(1);

/// An open device. Shared by all threads.
pub struct Vulkan {
    device: wgpu::Device,
    queue: wgpu::Queue,
    info: wgpu::AdapterInfo,
    max_buffer_bytes: usize,
    pipelines: Mutex<HashMap<&'static str, Pipeline>>,
    /// Why the device is lost, once it is.
    lost: Arc<Mutex<Option<String>>>,
}

/// Memory that stays on the device until it is dropped.
struct OwnMemory {
    buffer: wgpu::Buffer,
    device: wgpu::Device,
}

impl Drop for OwnMemory {
    /// Frees it now. Without this it would stay until the next program, which may never come.
    fn drop(&mut self) {
        self.buffer.destroy();
        // A device that is lost has freed it.
        drop(poll(|| self.device.poll(wgpu::PollType::Poll)));
    }
}

#[derive(Clone)]
struct Pipeline {
    pipeline: wgpu::ComputePipeline,
    layout: wgpu::BindGroupLayout,
}

/// Which devices are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adapters {
    /// Those of hardware.
    Hardware,
    /// Those that compute on the processor too: slower than plain code, for tests.
    Any,
}

impl Vulkan {
    /// Opens the best device: a discrete GPU before an integrated one, before any other.
    ///
    /// # Errors
    /// Says which devices there are and why none is taken.
    pub fn open(adapters: Adapters) -> Result<Self, GpuError> {
        let mut wanted = wgpu::InstanceDescriptor::new_without_display_handle();
        wanted.backends = wgpu::Backends::VULKAN;
        let instance = wgpu::Instance::new(wanted);
        let mut found = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::VULKAN));
        if found.is_empty() {
            return Err(GpuError::Failed("no Vulkan device was found: no driver, or none that works".into()));
        }
        let names: Vec<String> = found.iter().map(|adapter| adapter.get_info().name).collect();
        if adapters == Adapters::Hardware {
            found.retain(|adapter| adapter.get_info().device_type != wgpu::DeviceType::Cpu);
        }
        found.sort_by_key(|adapter| rank(adapter.get_info().device_type));
        let adapter = found.into_iter().next().ok_or_else(|| {
            GpuError::Failed(format!("only software computes Vulkan here: {}", names.join(", ")))
        })?;
        let limits = adapter.limits();
        let request = wgpu::DeviceDescriptor {
            label: Some("photofinish"),
            // The default would be 128 MiB a binding, however large the device is.
            required_limits: limits.clone(),
            memory_hints: wgpu::MemoryHints::Performance,
            ..Default::default()
        };
        let opened = pollster::block_on(adapter.request_device(&request));
        let (device, queue) = opened.map_err(|error| GpuError::Failed(error.to_string()))?;
        let lost = Arc::new(Mutex::new(None));
        let note = Arc::clone(&lost);
        device.set_device_lost_callback(move |reason, message| {
            *note.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("{reason:?} {message}"));
        });
        let max = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size).min(u32::MAX.into());
        Ok(Self {
            device,
            queue,
            info: adapter.get_info(),
            max_buffer_bytes: usize::try_from(max).unwrap_or(usize::MAX) / 4 * 4,
            pipelines: Mutex::default(),
            lost,
        })
    }

    /// Whether the processor computes what this device is asked.
    pub fn is_software(&self) -> bool {
        self.info.device_type == wgpu::DeviceType::Cpu
    }

    fn pipeline(&self, kernel: &'static Kernel, bindings: usize) -> Result<Pipeline, GpuError> {
        let mut pipelines = self.pipelines.lock().unwrap_or_else(PoisonError::into_inner);
        match pipelines.entry(kernel.entry) {
            Entry::Occupied(known) => Ok(known.get().clone()),
            Entry::Vacant(slot) => {
                let pipeline = self.checked(|| self.compile(kernel, bindings))?;
                Ok(slot.insert(pipeline).clone())
            }
        }
    }

    fn compile(&self, kernel: &'static Kernel, bindings: usize) -> Pipeline {
        let entries: Vec<wgpu::BindGroupLayoutEntry> = (0..bindings)
            .map(|binding| wgpu::BindGroupLayoutEntry {
                binding: binding as u32,
                visibility: wgpu::ShaderStages::COMPUTE,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Storage { read_only: !kernel.writable.contains(&binding) },
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            })
            .collect();
        let label = Some(kernel.entry);
        let layout = self
            .device
            .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label, entries: &entries });
        let pipeline_layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label,
            bind_group_layouts: &[Some(&layout)],
            ..Default::default()
        });
        let module = self.device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(kernel.source.name),
            source: wgpu::ShaderSource::Wgsl(kernel.source.wgsl.into()),
        });
        let pipeline = self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label,
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some(kernel.entry),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        Pipeline { pipeline, layout }
    }

    /// Does something whose errors wgpu reports apart from the call; without this they would panic.
    fn checked<T>(&self, action: impl FnOnce() -> T) -> Result<T, GpuError> {
        // A lack of memory counts most: a buffer for which there is none is invalid in all that is done with it.
        let filters =
            [wgpu::ErrorFilter::Internal, wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::OutOfMemory];
        let scopes = filters.map(|filter| self.device.push_error_scope(filter));
        let result = action();
        // The innermost is the one that was opened last.
        let errors: Vec<wgpu::Error> =
            scopes.into_iter().rev().filter_map(|scope| pollster::block_on(scope.pop())).collect();
        match errors.into_iter().next() {
            None => Ok(result),
            Some(error) => Err(self.to_error(error)),
        }
    }

    fn to_error(&self, error: wgpu::Error) -> GpuError {
        if let Some(reason) = self.reason_of_loss() {
            return GpuError::Lost(reason);
        }
        match error {
            wgpu::Error::OutOfMemory { source } => GpuError::OutOfMemory(source.to_string()),
            // What is wrong is in the description; the error itself says only that something is.
            wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. } => {
                GpuError::Failed(description)
            }
        }
    }

    fn reason_of_loss(&self) -> Option<String> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn create_buffer(&self, bytes: usize, usage: wgpu::BufferUsages) -> wgpu::Buffer {
        self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: padded_bytes(bytes) as u64,
            usage,
            mapped_at_creation: false,
        })
    }

    fn create_filled(&self, bytes: &[u8]) -> wgpu::Buffer {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST;
        let buffer = self.create_buffer(bytes.len(), usage);
        let (whole, rest) = bytes.as_chunks::<4>();
        if !whole.is_empty() {
            self.queue.write_buffer(&buffer, 0, whole.as_flattened());
        }
        if !rest.is_empty() {
            let mut last = [0; 4];
            last[..rest.len()].copy_from_slice(rest);
            self.queue.write_buffer(&buffer, whole.len() as u64 * 4, &last);
        }
        buffer
    }

    fn create_buffers(&self, program: &Program<'_>) -> Result<Vec<wgpu::Buffer>, GpuError> {
        let storage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC;
        let create = |buffer: &Buffer<'_>| match buffer {
            Buffer::Input(bytes) => Ok(self.create_filled(bytes)),
            Buffer::Scratch(bytes) | Buffer::Output(bytes) => Ok(self.create_buffer(*bytes, storage)),
            Buffer::Resident(resident) => resident
                .memory
                .downcast_ref::<OwnMemory>()
                .filter(|memory| memory.device == self.device)
                .map(|memory| memory.buffer.clone())
                .ok_or_else(|| GpuError::Failed("memory of another device".into())),
        };
        self.checked(|| program.buffers.iter().map(create).collect())?
    }

    fn bind(&self, step: &Step, layout: &wgpu::BindGroupLayout, buffers: &[wgpu::Buffer]) -> wgpu::BindGroup {
        let entries: Vec<wgpu::BindGroupEntry<'_>> = step
            .bindings
            .iter()
            .enumerate()
            .map(|(binding, &index)| wgpu::BindGroupEntry {
                binding: binding as u32,
                resource: buffers[index].as_entire_binding(),
            })
            .collect();
        self.device.create_bind_group(&wgpu::BindGroupDescriptor { label: None, layout, entries: &entries })
    }

    /// Submits all launches, and the copies of the outputs into memory that can be read.
    fn submit(
        &self,
        program: &Program<'_>,
        pipelines: &[Pipeline],
        buffers: &[wgpu::Buffer],
    ) -> (wgpu::SubmissionIndex, Vec<wgpu::Buffer>) {
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        for (step, pipeline) in program.steps.iter().zip(pipelines) {
            let group = self.bind(step, &pipeline.layout, buffers);
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            pass.set_pipeline(&pipeline.pipeline);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups(step.groups[0], step.groups[1], step.groups[2]);
        }
        let mut readable = Vec::new();
        for (buffer, memory) in program.buffers.iter().zip(buffers) {
            if let Buffer::Output(bytes) = buffer {
                let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
                let staging = self.create_buffer(*bytes, usage);
                encoder.copy_buffer_to_buffer(memory, 0, &staging, 0, Some(staging.size()));
                // Its errors come when the range is read.
                encoder.map_buffer_on_submit(&staging, wgpu::MapMode::Read, .., |_| {});
                readable.push(staging);
            }
        }
        (self.queue.submit([encoder.finish()]), readable)
    }

    fn wait(&self, submission: wgpu::SubmissionIndex) -> Result<(), GpuError> {
        let wait = wgpu::PollType::Wait { submission_index: Some(submission), timeout: Some(MAX_RUN_TIME) };
        // Of what was submitted to a device that was lost before, wgpu says only that it does not know it.
        poll(|| self.device.poll(wait)).map_err(|error| self.reason_of_loss().map_or(error, GpuError::Lost))
    }
}

/// Polls a device. wgpu panics where the driver says that the device is lost. A pass would end by that and nobody would
/// know why, and of several destructors that panic one after the other the second ends the process.
fn poll(poll: impl FnOnce() -> Result<wgpu::PollStatus, wgpu::PollError>) -> Result<(), GpuError> {
    match panic::catch_unwind(AssertUnwindSafe(poll)) {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(wgpu::PollError::Timeout)) => {
            Err(GpuError::Lost(format!("no answer within {} s", MAX_RUN_TIME.as_secs())))
        }
        Ok(Err(error)) => Err(GpuError::Failed(error.to_string())),
        Err(payload) => {
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
            Err(GpuError::Lost(text.unwrap_or("wgpu panicked").trim_end().to_owned()))
        }
    }
}

fn rank(kind: wgpu::DeviceType) -> u8 {
    match kind {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    }
}

impl fmt::Debug for Vulkan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl Gpu for Vulkan {
    fn name(&self) -> String {
        format!("{} ({})", self.info.name, self.info.driver_info)
    }

    fn max_buffer_bytes(&self) -> usize {
        self.max_buffer_bytes
    }

    fn upload(&self, bytes: &[u8]) -> Result<Resident, GpuError> {
        let (needed, limit) = (padded_bytes(bytes.len()), self.max_buffer_bytes);
        if needed > limit {
            return Err(GpuError::TooLarge { bytes: needed, limit });
        }
        let buffer = self.checked(|| {
            let buffer = self.create_filled(bytes);
            // The bytes wait in memory of their own until the next submission, which may be long after.
            self.queue.submit([]);
            buffer
        })?;
        let memory = OwnMemory { buffer, device: self.device.clone() };
        Ok(Resident { bytes: bytes.len(), memory: Arc::new(memory) })
    }

    fn run(&self, program: &Program<'_>) -> Result<Vec<Vec<u8>>, GpuError> {
        for buffer in &program.buffers {
            if buffer.device_bytes() > self.max_buffer_bytes {
                return Err(GpuError::TooLarge {
                    bytes: buffer.device_bytes(),
                    limit: self.max_buffer_bytes,
                });
            }
        }
        let compiled = program.steps.iter().map(|step| self.pipeline(step.kernel, step.bindings.len()));
        let pipelines: Vec<Pipeline> = compiled.collect::<Result<_, _>>()?;
        let buffers = self.create_buffers(program)?;
        let (submission, readable) = self.checked(|| self.submit(program, &pipelines, &buffers))?;
        self.wait(submission)?;
        let outputs = program.buffers.iter().filter_map(|buffer| match buffer {
            Buffer::Output(bytes) => Some(*bytes),
            _ => None,
        });
        let read = |(bytes, staging): (usize, &wgpu::Buffer)| {
            let view = staging.get_mapped_range(..).map_err(|error| GpuError::Lost(error.to_string()))?;
            Ok(view[..bytes].to_vec())
        };
        outputs.zip(&readable).map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_wgpu_is_a_lost_device() {
        let message = "Error in Device::poll: Parent device is lost";
        assert_eq!(poll(|| panic!("{message}\n")), Err(GpuError::Lost(message.into())));
        assert_eq!(poll(|| panic!("constant")), Err(GpuError::Lost("constant".into())));
        assert!(matches!(poll(|| Err(wgpu::PollError::Timeout)), Err(GpuError::Lost(_))));
        let unknown = poll(|| Err(wgpu::PollError::WrongSubmissionIndex(2, 1)));
        assert!(matches!(unknown, Err(GpuError::Failed(_))), "{unknown:?}");
        assert_eq!(poll(|| Ok(wgpu::PollStatus::QueueEmpty)), Ok(()));
    }

    /// Memory that polls when it is freed, on a device that is lost.
    struct LostMemory;

    impl Drop for LostMemory {
        fn drop(&mut self) {
            assert!(poll(|| panic!("lost")).is_err());
        }
    }

    #[test]
    fn copies_on_a_lost_device_are_freed_in_a_row_and_while_a_pass_unwinds() {
        drop([LostMemory, LostMemory]);
        let pass = || -> u32 {
            let _copies = [LostMemory, LostMemory];
            panic!("the pass has failed")
        };
        assert!(panic::catch_unwind(pass).is_err());
    }
}
