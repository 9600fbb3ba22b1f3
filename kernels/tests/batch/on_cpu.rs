//! A device that runs the CUDA C++ on the processor.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use photofinish_cuda::device::Grid;
use photofinish_cuda::on_cpu::Library;
use photofinish_kernels::batch;
use photofinish_kernels::gpu::{Buffer, Gpu, GpuError, Program, Resident, padded_bytes};
use tempfile::TempDir;

/// Compiled kernels; runs one program at a time.
pub struct OnCpu {
    _folder: TempDir,
    libraries: Mutex<HashMap<&'static str, Library>>,
}

impl OnCpu {
    pub fn compile() -> Self {
        let folder = tempfile::tempdir().expect("no error");
        let compile = |source: &&'static photofinish_kernels::gpu::Source| {
            let library =
                Library::compile(folder.path(), source.name, source.cuda, source.entries).expect("no error");
            (source.name, library)
        };
        let libraries = Mutex::new(batch::list_sources().iter().map(compile).collect());
        Self { _folder: folder, libraries }
    }
}

impl fmt::Debug for OnCpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CUDA C++ on the processor")
    }
}

impl Gpu for OnCpu {
    fn name(&self) -> String {
        "CUDA C++ on the processor".into()
    }

    fn max_buffer_bytes(&self) -> usize {
        u32::MAX as usize / 4 * 4
    }

    fn upload(&self, bytes: &[u8]) -> Result<Resident, GpuError> {
        Ok(Resident { bytes: bytes.len(), memory: Arc::new(bytes.to_vec()) })
    }

    fn run(&self, program: &Program<'_>) -> Result<Vec<Vec<u8>>, GpuError> {
        let mut memories: Vec<Vec<u8>> = program
            .buffers
            .iter()
            .map(|buffer| {
                let mut memory = match buffer {
                    Buffer::Input(bytes) => bytes.to_vec(),
                    Buffer::Resident(resident) => {
                        resident.memory.downcast_ref::<Vec<u8>>().expect("no error").clone()
                    }
                    Buffer::Scratch(_) | Buffer::Output(_) => Vec::new(),
                };
                memory.resize(padded_bytes(buffer.device_bytes()), 0);
                memory
            })
            .collect();
        let mut libraries = self.libraries.lock().unwrap_or_else(PoisonError::into_inner);
        for step in &program.steps {
            let library = libraries.get_mut(step.kernel.source.name).expect("no error");
            // Each memory is lent once; no kernel has the same one twice.
            let mut lent: Vec<Option<&mut [u8]>> =
                memories.iter_mut().map(|memory| Some(memory.as_mut_slice())).collect();
            let mut arguments: Vec<&mut [u8]> =
                step.bindings.iter().map(|&index| lent[index].take().expect("no error")).collect();
            let grid = Grid { blocks: step.groups, threads: step.kernel.group };
            library.launch(step.kernel.entry, grid, &mut arguments).expect("no error");
        }
        let outputs = program.buffers.iter().zip(memories).filter_map(|(buffer, mut memory)| match buffer {
            Buffer::Output(bytes) => {
                memory.truncate(*bytes);
                Some(memory)
            }
            _ => None,
        });
        Ok(outputs.collect())
    }
}
