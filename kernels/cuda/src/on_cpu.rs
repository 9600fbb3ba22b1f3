//! Runs CUDA C++ on the processor, for tests on machines without a GPU: the sources are compiled by the C++ compiler
//! with a header that has just enough of CUDA. Blocks run one after another, the threads of a block in turn up to the
//! next barrier, so shared memory and barriers work; races do not show.

use std::ffi::c_void;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use crate::CudaError;
use crate::device::Grid;

/// What replaces CUDA.
const HEADER: &str = include_str!("on_cpu.h");

type Launch = unsafe extern "C" fn(*const u32, *const u32, *const *const c_void);

/// Compiled kernels of one source. A launch uses state of the library: one at a time.
#[derive(Debug)]
pub struct Library {
    library: libloading::Library,
}

impl Library {
    /// Compiles a source with `c++`, in a folder that has to exist until the library is dropped.
    ///
    /// # Errors
    /// `Compile` with the compiler's messages; `Unavailable` when there is no compiler.
    pub fn compile(folder: &Path, name: &str, source: &str, entries: &[&str]) -> Result<Self, CudaError> {
        let unavailable = |error: std::io::Error| CudaError::Unavailable(error.to_string());
        let mut text = format!("{HEADER}\n{source}\n");
        for entry in entries {
            writeln!(text, "CUDA_ON_CPU({entry})")
                .map_err(|error| CudaError::Unavailable(error.to_string()))?;
        }
        let (file, library) = (folder.join(format!("{name}.cpp")), folder.join(format!("lib{name}.so")));
        std::fs::write(&file, text).map_err(unavailable)?;
        let mut compiler = Command::new("c++");
        // As the processor's own arithmetic: no product and sum in one rounding.
        compiler.args(["-std=c++17", "-O2", "-w", "-ffp-contract=off", "-shared", "-fPIC"]);
        let done = compiler.arg(&file).arg("-o").arg(&library).output().map_err(unavailable)?;
        if !done.status.success() {
            let log = String::from_utf8_lossy(&done.stderr).into_owned();
            return Err(CudaError::Compile { name: name.into(), log });
        }
        // SAFETY: the library was just made from our sources and has no initialisers but those of the C++ library.
        let library = unsafe { libloading::Library::new(&library) };
        Ok(Self { library: library.map_err(|error| CudaError::Unavailable(error.to_string()))? })
    }

    /// Runs a kernel whose parameters are pointers to these memories, in order.
    ///
    /// # Errors
    /// When there is no kernel of this name.
    pub fn launch(&mut self, entry: &str, grid: Grid, memories: &mut [&mut [u8]]) -> Result<(), CudaError> {
        let name = format!("{entry}_on_cpu");
        // SAFETY: the function has this type, since the macro of the header declares it.
        let function = unsafe { self.library.get::<Launch>(name.as_bytes()) };
        let function = function.map_err(|error| CudaError::Unavailable(error.to_string()))?;
        let pointers: Vec<*mut u8> = memories.iter_mut().map(|memory| memory.as_mut_ptr()).collect();
        let arguments: Vec<*const c_void> =
            pointers.iter().map(|pointer| std::ptr::from_ref(pointer).cast()).collect();
        // SAFETY: the kernel's parameters are pointers to these memories, which are borrowed until it returns; it stays
        // within them (see the crate's documentation).
        unsafe { function(grid.blocks.as_ptr(), grid.threads.as_ptr(), arguments.as_ptr()) };
        Ok(())
    }
}
