//! What this CPU is called and which number formats it computes natively.

use std::path::Path;

/// Where Linux describes the CPU.
const CPU_INFO: &str = "/proc/cpuinfo";

/// Flags of CPUs that multiply bf16 numbers natively. Others emulate them, at a third of the speed of f32.
const BF16_FLAGS: [&str; 2] = ["avx512_bf16", "amx_bf16"];

/// The CPU of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The vendor's name; empty when it is not known.
    pub name: String,
    /// Whether it computes bf16 natively.
    pub has_bf16: bool,
}

impl Cpu {
    /// Detects the CPU. One that cannot be detected has no name and no bf16.
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
        let has_bf16 = field("flags").split_whitespace().any(|flag| BF16_FLAGS.contains(&flag));
        Self { name: field("model name"), has_bf16 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_needs_a_flag_of_the_cpu() {
        let info = |flags: &str| {
            format!("processor\t: 0\nmodel name\t: A CPU\nflags\t\t: fpu {flags} sse\n\nprocessor\t: 1\n")
        };
        let cpu = |flags: &str| Cpu::parse(&info(flags));
        assert_eq!(cpu("avx512f avx512_vnni"), Cpu { name: "A CPU".into(), has_bf16: false });
        assert!(cpu("avx512_bf16").has_bf16 && cpu("amx_bf16 amx_tile").has_bf16);
        assert_eq!(Cpu::parse(""), Cpu { name: String::new(), has_bf16: false });
    }
}
