//! What the tests of both allocators measure.

/// Resident memory of this process.
pub fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux has it");
    let pages = pages.split_whitespace().nth(1).expect("resident pages");
    pages.parse::<usize>().expect("a number") * 4096
}
