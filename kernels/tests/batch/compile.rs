//! CUDA C++ for GPUs, without one: the run-time compiler takes every kernel, and the assembler says what it uses.

use std::process::Command;

use photofinish_cuda::cache::KernelCache;
use photofinish_cuda::compile::compile;
use photofinish_cuda::device::CudaDevice;
use photofinish_cuda::{CudaError, libraries};
use photofinish_kernels::batch::list_sources;
use photofinish_kernels::gpu::Source;

use crate::devices::find_folder;

/// Where set-up put NVIDIA's run-time compiler (`lib`) and assembler (`bin/ptxas`).
const CUDA: &str = "PHOTOFINISH_TEST_CUDA";

/// From Turing to Blackwell.
const ARCHITECTURES: [&str; 3] = ["75", "90", "100"];

/// At more registers a thread, fewer than four blocks of 256 threads fit a multiprocessor.
const MAX_REGISTERS: u32 = 64;

#[test]
fn kernels_compile_for_every_architecture_without_spills() {
    let Some(folder) = find_folder(CUDA) else { return };
    libraries::open_compiler(Some(&folder.join("lib"))).expect("no error");
    let scratch = tempfile::tempdir().expect("no error");
    for source in list_sources() {
        for architecture in ARCHITECTURES {
            let cubin = compile(source.name, source.cuda, &format!("sm_{architecture}")).expect("no error");
            assert!(cubin.code.starts_with(b"\x7fELF") && cubin.log.is_empty(), "{}", cubin.log);
            let ptx =
                compile(source.name, source.cuda, &format!("compute_{architecture}")).expect("no error");
            let (from, to) = (scratch.path().join("kernel.ptx"), scratch.path().join("kernel.cubin"));
            std::fs::write(&from, ptx.code.strip_suffix(&[0]).unwrap_or(&ptx.code)).expect("no error");
            let mut assembler = Command::new(folder.join("bin/ptxas"));
            assembler.arg("-v").arg(format!("--gpu-name=sm_{architecture}")).arg(&from).arg("-o").arg(&to);
            let said = String::from_utf8(assembler.output().expect("no error").stderr).expect("no error");
            let kernels: Vec<&str> = said.split("Compiling entry function").skip(1).collect();
            assert_eq!(kernels.len(), source.entries.len(), "{said}");
            for kernel in kernels {
                assert!(kernel.contains("0 bytes spill stores, 0 bytes spill loads"), "{kernel}");
                let registers: u32 = word_before(kernel, " registers").parse().expect("no error");
                println!(
                    "sm_{architecture} {} {registers} registers",
                    kernel.split('\'').nth(1).expect("no error")
                );
                assert!(registers <= MAX_REGISTERS, "{kernel}");
            }
        }
    }
}

fn word_before<'t>(text: &'t str, end: &str) -> &'t str {
    text.split(end).next().and_then(|before| before.rsplit(' ').next()).expect("no error")
}

#[test]
fn a_mistake_in_a_kernel_is_an_error_with_its_line() {
    let Some(folder) = find_folder(CUDA) else { return };
    libraries::open_compiler(Some(&folder.join("lib"))).expect("no error");
    let error = compile("wrong", "extern \"C\" __global__ void k() {\n nonsense; }", "sm_90").unwrap_err();
    assert!(matches!(error, CudaError::Compile { .. }), "{error}");
    assert!(error.to_string().contains("wrong(2)"), "{error}");
}

#[test]
fn a_device_that_is_not_there_is_an_error_and_no_panic() {
    // On a machine with a GPU it is the hundredth that is not there.
    let error = CudaDevice::open(99, None, KernelCache::none()).unwrap_err();
    assert!(matches!(error, CudaError::Unavailable(_)), "{error}");
}

#[test]
fn both_languages_have_the_same_kernels_with_the_same_workgroups() {
    for source in list_sources() {
        for entry in source.entries {
            let wgsl: u32 = wgsl_group(source, entry).iter().product();
            assert_eq!(wgsl, cuda_group(source, entry), "{entry}");
            assert!((1..=256).contains(&wgsl), "{entry}: {wgsl} threads, of 256 that WebGPU promises");
        }
        let count = |text: &str, of: &str| text.matches(of).count();
        let entries = (count(source.wgsl, "@compute"), count(source.cuda, "__global__"));
        assert_eq!(entries, (source.entries.len(), source.entries.len()), "{}", source.name);
    }
}

/// Returns the threads of a workgroup that the WGSL of a kernel names, in x, y and z.
pub fn wgsl_group(source: &Source, entry: &str) -> [u32; 3] {
    let attributes = line_before(source.wgsl, &format!("\nfn {entry}("));
    let sizes = attributes.strip_prefix("@compute @workgroup_size(").and_then(|rest| rest.strip_suffix(')'));
    let sizes = sizes.unwrap_or_else(|| panic!("{entry}: {attributes}"));
    let sizes: Vec<u32> = sizes.split(", ").map(|size| size.parse().expect("a number")).collect();
    sizes.try_into().expect("three sizes")
}

/// Returns the threads of a block that the CUDA C++ of a kernel names: a number, or a name that is defined as one.
fn cuda_group(source: &Source, entry: &str) -> u32 {
    let declaration = line_before(source.cuda, &format!("\n{entry}("));
    let threads = declaration
        .strip_prefix("extern \"C\" __global__ void __launch_bounds__(")
        .and_then(|rest| rest.strip_suffix(')'));
    let threads = threads.unwrap_or_else(|| panic!("{entry}: {declaration}"));
    let definition = format!("#define {threads} ");
    let defined = source.cuda.lines().find_map(|line| line.strip_prefix(definition.as_str()));
    defined.unwrap_or(threads).parse().expect("a number of threads")
}

/// Returns the line that ends where this is, which must be there once.
fn line_before<'t>(text: &'t str, what: &str) -> &'t str {
    assert_eq!(text.matches(what).count(), 1, "{what}");
    text.split(what).next().and_then(|before| before.lines().next_back()).expect("a line")
}
