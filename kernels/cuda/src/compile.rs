//! NVRTC: CUDA C++ to code for a device.

use std::ffi::{CStr, CString};
use std::ptr;

use cudarc::nvrtc::sys as nvrtc;

use crate::CudaError;

/// Code for an architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// A cubin for `sm_90` and the like, PTX for `compute_90` and the like.
    pub code: Vec<u8>,
    /// What the compiler warned of; mostly empty.
    pub log: String,
}

/// The compiler's options.
pub(crate) fn list_options(architecture: &str) -> [String; 3] {
    [format!("--gpu-architecture={architecture}"), "--std=c++17".into(), "--fmad=false".into()]
}

/// Returns the compiler's version, major and minor: it tells no more.
pub(crate) fn read_version() -> Result<(i32, i32), CudaError> {
    crate::libraries::open_compiler(None)?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both numbers live until the call returns.
    check(unsafe { nvrtc::nvrtcVersion(&mut major, &mut minor) }, "nvrtcVersion")
        .map_err(CudaError::Unavailable)?;
    Ok((major, minor))
}

/// Compiles a source. [`crate::libraries::open_compiler`] has to have succeeded. Products and sums are rounded one by
/// one, as on a processor: a fused multiply-add would differ in the last bit.
///
/// # Errors
/// `Compile` with the compiler's messages; `Unavailable` when there is no compiler.
pub fn compile(name: &str, source: &str, architecture: &str) -> Result<Compiled, CudaError> {
    crate::libraries::open_compiler(None)?;
    let failed = |log: String| CudaError::Compile { name: name.into(), log };
    let text = |text: &str| CString::new(text).map_err(|error| failed(error.to_string()));
    let (source, file) = (text(source)?, text(name)?);
    let options: Vec<CString> =
        list_options(architecture).iter().map(|option| text(option)).collect::<Result<_, _>>()?;
    let is_binary = architecture.starts_with("sm_");
    let mut program = ptr::null_mut();
    // SAFETY: the texts live until the call returns.
    let created = unsafe {
        nvrtc::nvrtcCreateProgram(&mut program, source.as_ptr(), file.as_ptr(), 0, ptr::null(), ptr::null())
    };
    check(created, "nvrtcCreateProgram").map_err(failed)?;
    let pointers: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
    // SAFETY: the program was created above, and the options live until the call returns.
    let compiled = unsafe { nvrtc::nvrtcCompileProgram(program, pointers.len() as i32, pointers.as_ptr()) };
    let log = read_log(program);
    let code = check(compiled, "nvrtcCompileProgram").and_then(|()| read_code(program, is_binary));
    // SAFETY: the program was created above and is not used any more.
    let destroyed = unsafe { nvrtc::nvrtcDestroyProgram(&mut program) };
    let log = log.map_err(failed)?;
    let code = code.map_err(|reason| failed(format!("{reason}\n{log}")))?;
    check(destroyed, "nvrtcDestroyProgram").map_err(failed)?;
    Ok(Compiled { code, log })
}

fn check(result: nvrtc::nvrtcResult, what: &str) -> Result<(), String> {
    if result == nvrtc::nvrtcResult::NVRTC_SUCCESS { Ok(()) } else { Err(format!("{what}: {result:?}")) }
}

fn read_log(program: nvrtc::nvrtcProgram) -> Result<String, String> {
    let mut size = 0;
    // SAFETY: the program exists; the buffer has the size that the library asks for.
    let log = unsafe {
        check(nvrtc::nvrtcGetProgramLogSize(program, &mut size), "nvrtcGetProgramLogSize")?;
        let mut log = vec![0_u8; size.max(1)];
        check(nvrtc::nvrtcGetProgramLog(program, log.as_mut_ptr().cast()), "nvrtcGetProgramLog")?;
        log
    };
    let text = CStr::from_bytes_until_nul(&log).map(|text| text.to_string_lossy().into_owned());
    Ok(text.unwrap_or_default().trim().to_owned())
}

fn read_code(program: nvrtc::nvrtcProgram, is_binary: bool) -> Result<Vec<u8>, String> {
    let (mut size, mut code) = (0, Vec::new());
    // SAFETY: the program was compiled; the buffer has the size that the library asks for.
    unsafe {
        if is_binary {
            check(nvrtc::nvrtcGetCUBINSize(program, &mut size), "nvrtcGetCUBINSize")?;
            code.resize(size, 0);
            check(nvrtc::nvrtcGetCUBIN(program, code.as_mut_ptr().cast()), "nvrtcGetCUBIN")?;
        } else {
            check(nvrtc::nvrtcGetPTXSize(program, &mut size), "nvrtcGetPTXSize")?;
            code.resize(size, 0);
            check(nvrtc::nvrtcGetPTX(program, code.as_mut_ptr().cast()), "nvrtcGetPTX")?;
        }
    }
    Ok(code)
}
