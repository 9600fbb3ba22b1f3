//! Nearest neighbours among many vectors kept in 8 bits a component, with a proof which of them may be among the answers.
//!
//! A row `x` is kept as a scale `s` and components `c` of -127 to 127; its approximation is `y = s c`, and how far it is off,
//! `e = |x - y|`, is kept beside it. A probe `q` is approximated in the same way, by `p = t d`. The dot product of the
//! integers `c` and `d` is exact and cheap, and since `q.x - p.y = (q - p).y + q.(x - y)`, Cauchy-Schwarz says how far it is
//! from the truth:
//!
//! ```text
//! | q.x - s t (c.d) |  <=  |q - p| |y| + |q| e
//! ```
//!
//! With vectors of 256 of unit length that is .01 to .02. Rows that may still be answers get a second look at the same bytes
//! with the probe in full: `| q.x - s (q.c) | <= |q| e`, half as wide. What remains is a superset of the answers, some
//! hundreds of a million rows, which the caller scores with the vectors themselves, so the answer is the one of
//! [`crate::cosine`], bit for bit. All bounds include the rounding of `f32`, here and in that score.
//!
//! [`QuantisedRows`] keeps rows, [`ProbeBatch`] the probes of one pass, and [`Scanner`] makes the pass. A device can take the
//! first look in its place ([`crate::batch::near`]); [`judge`] then takes the second one.

mod codes;
mod copy;
mod probes;
mod rows;
mod scan;
#[cfg(test)]
mod tests;

pub use self::copy::DeviceCopy;
pub use self::probes::ProbeBatch;
pub use self::rows::{BLOCK_ROWS, QuantisedRow, QuantisedRows};
pub use self::scan::{Candidate, RowBits, Scanner, judge};
