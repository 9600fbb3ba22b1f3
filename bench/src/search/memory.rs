//! The read bandwidth of this machine: adds up as many bytes as a search reads, in memory of the same kind.

use photofinish_dot::{Line, Lines};

use super::contender::time;

/// Bytes of a piece of memory, as the index has them.
const PIECE_BYTES: usize = 2 << 20;

/// Passes, of which the fastest counts: the machine can at least do that.
const PASSES: usize = 15;

/// Sums kept side by side, so that memory limits the loop and not the latency of additions.
const CHAINS: usize = 4;

/// Returns the bandwidth in GB/s of reading `bytes` on this many threads. Fetching ahead is left to the
/// processor, so a search that asks for memory ahead may be faster on one thread.
pub fn measure_bandwidth(bytes: usize, threads: usize) -> f64 {
    let piece_lines = PIECE_BYTES / size_of::<Line>();
    let pieces: Vec<Lines> = (0..bytes.div_ceil(PIECE_BYTES))
        .map(|_| {
            let mut piece = Lines::new();
            piece.reserve_exact(piece_lines);
            piece.extend_with_zeros(piece_lines);
            piece
        })
        .collect();
    let read = |_| {
        time(|| {
            std::thread::scope(|scope| {
                for part in pieces.chunks(pieces.len().div_ceil(threads)) {
                    scope.spawn(move || {
                        for piece in part {
                            std::hint::black_box(add_up(piece));
                        }
                    });
                }
            });
        })
    };
    let least = (0..PASSES).map(read).fold(f64::INFINITY, f64::min);
    (pieces.len() * PIECE_BYTES) as f64 / least / 1e6
}

fn add_up(lines: &[Line]) -> u32 {
    pulp::Arch::new().dispatch(AddUp { lines })
}

/// Not a closure: those are compiled for the processor's vectors only where the compiler finds them small enough.
struct AddUp<'l> {
    lines: &'l [Line],
}

impl pulp::NullaryFnOnce for AddUp<'_> {
    type Output = u32;

    #[inline(always)]
    fn call(self) -> u32 {
        let mut sums = [[0_u32; 16]; CHAINS];
        for lines in self.lines.as_chunks::<CHAINS>().0 {
            for (sums, line) in sums.iter_mut().zip(lines) {
                for (sum, word) in sums.iter_mut().zip(&line.0) {
                    *sum = sum.wrapping_add(u32::from_le_bytes(*word));
                }
            }
        }
        sums.as_flattened().iter().fold(0_u32, |sum, part| sum.wrapping_add(*part))
    }
}
