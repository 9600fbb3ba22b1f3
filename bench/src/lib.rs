//! How figures are reported: tables and goals, on what they were measured, and the page that contains them; and how metrics
//! and the memory and CPU time of processes are read. For the programs that measure; it measures nothing itself.

#![forbid(unsafe_code)]

pub mod paths;
pub mod process;
pub mod prometheus;
pub mod report;
