//! What this CPU is called and which number formats it computes natively.

use std::path::Path;

use crate::onnx::runtime::Precision;

/// Where Linux describes the CPU.
const CPU_INFO: &str = "/proc/cpuinfo";

/// Flags of CPUs that multiply bf16 numbers natively. Others emulate them, at a third of the speed of f32.
const BF16_FLAGS: [&str; 2] = ["avx512_bf16", "amx_bf16"];

/// Flags of CPUs that multiply numbers of 16 bits with an exponent of 5 natively.
const F16_FLAGS: [&str; 2] = ["avx512_fp16", "amx_fp16"];

/// Flags of CPUs that add products of 8-bit integers in 32 bits. Others add two of them in 16, which overflow.
const INT8_FLAGS: [&str; 3] = ["avx512_vnni", "avx_vnni", "amx_int8"];

/// Flags of CPUs on which the speed of networks depends.
const SPEED_FLAGS: [&str; 11] = [
    "avx2",
    "fma",
    "avx_vnni",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "avx512_fp16",
    "amx_tile",
    "amx_bf16",
    "amx_fp16",
    "amx_int8",
];

/// The CPU of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The vendor's name; empty when it is not known. Virtual machines of different generations often have the same.
    pub name: String,
    /// Family, model, stepping and the vector instructions that it has, as the kernel calls them.
    pub generation: String,
    /// The precisions besides f32 that it computes natively.
    pub precisions: Vec<Precision>,
}

impl Cpu {
    /// Detects the CPU. One that cannot be detected has no name and f32 alone.
    pub fn detect() -> Self {
        Self::parse(&std::fs::read_to_string(Path::new(CPU_INFO)).unwrap_or_default())
    }

    /// Parses the first CPU of `/proc/cpuinfo`.
    fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let value = |line: &'_ str| {
                let (key, value) = line.split_once(':')?;
                (key.trim() == name).then(|| value.trim().to_owned())
            };
            text.lines().find_map(value).unwrap_or_default()
        };
        let flags = field("flags");
        let flags: Vec<&str> = flags.split_whitespace().collect();
        let kinds: [(Precision, &[&str]); 3] =
            [(Precision::Bf16, &BF16_FLAGS), (Precision::F16, &F16_FLAGS), (Precision::Int8, &INT8_FLAGS)];
        let is_native = |needed: &[&str]| needed.iter().any(|flag| flags.contains(flag));
        let native = kinds.into_iter().filter(|(_, needed)| is_native(needed));
        let precisions = native.map(|(precision, _)| precision).collect();
        let numbers = ["cpu family", "model", "stepping"].map(field);
        let speed = SPEED_FLAGS.into_iter().filter(|flag| flags.contains(flag));
        let described: Vec<&str> = numbers.iter().map(String::as_str).chain(speed).collect();
        Self { name: field("model name"), generation: described.join(" ").trim().to_owned(), precisions }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_precision_needs_a_flag_of_the_cpu() {
        let info = |flags: &str| {
            format!("processor\t: 0\nmodel name\t: A CPU\nflags\t\t: fpu {flags} sse\n\nprocessor\t: 1\n")
        };
        let cpu = |flags: &str| Cpu::parse(&info(flags));
        use Precision::{Bf16, F16, Int8};
        assert_eq!(cpu("amx_bf16 amx_tile").precisions, [Bf16]);
        assert_eq!(cpu("avx512_bf16 avx512_fp16 avx512_vnni").precisions, [Bf16, F16, Int8]);
        assert_eq!(cpu("avx2 avx_vnni").precisions, [Int8]);
        let without = cpu("avx512f avx512_vbmi2");
        assert_eq!((without.name.as_str(), without.precisions), ("A CPU", Vec::new()));
        assert_eq!(
            Cpu::parse(""),
            Cpu { name: String::new(), generation: String::new(), precisions: Vec::new() }
        );
    }

    #[test]
    fn generations_of_one_name_are_told_apart() {
        let info = |model: u32, flags: &str| {
            format!(
                "cpu family\t: 25\nmodel\t\t: {model}\nmodel name\t: AMD EPYC\nstepping\t: 1\nflags\t\t: {flags}\n"
            )
        };
        let cpu = |model, flags: &str| Cpu::parse(&info(model, flags));
        assert_eq!(cpu(17, "fpu avx2 avx512f").generation, "25 17 1 avx2 avx512f");
        assert_ne!(cpu(17, "avx2"), cpu(1, "avx2"));
        assert_ne!(cpu(17, "avx2 avx512f amx_tile"), cpu(17, "avx2 avx512f"), "what a hypervisor hides");
    }
}
