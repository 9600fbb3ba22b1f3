//! Copies entropy-coded bytes without their stuffed zeros.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "loads of vectors take pointers"))]

/// Bytes looked at in one step.
pub(super) const STEP: usize = 32;

/// How far unstuffing came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// Offset in the file: of a marker's 0xff, or its length, if ended.
    pub(super) offset: usize,
    /// Bytes of the output.
    pub(super) filled: usize,
    /// A marker or the file's end was reached.
    pub(super) has_ended: bool,
}

/// Copies from `file` at `from.offset` to `out` at `from.filled` without stuffed zeros, until a marker (left unread), the
/// file's end, or until `out` has no room for another step.
#[inline(never)]
pub(super) fn unstuff(file: &[u8], from: Progress, out: &mut [u8]) -> Progress {
    let Progress { mut offset, mut filled, .. } = from;
    loop {
        (offset, filled) = copy_clean_steps(file, (offset, filled), out);
        if filled + STEP > out.len() {
            return Progress { offset, filled, has_ended: false };
        }
        match (file.get(offset), file.get(offset + 1)) {
            (Some(0xff), Some(0)) => {
                out[filled] = 0xff;
                filled += 1;
                offset += 2;
            }
            // Fill bytes may stand before a marker.
            (Some(0xff), Some(0xff)) => offset += 1,
            (Some(0xff) | None, _) => return Progress { offset, filled, has_ended: true },
            (Some(byte), _) => {
                out[filled] = *byte;
                filled += 1;
                offset += 1;
            }
        }
    }
}

/// Copies whole steps up to and including the first with an 0xff, of which only what is before the 0xff counts. Takes and
/// returns offset and filled.
fn copy_clean_steps(file: &[u8], at: (usize, usize), out: &mut [u8]) -> (usize, usize) {
    let (mut offset, mut filled) = at;
    loop {
        let from = file.get(offset..).and_then(|rest| rest.first_chunk::<STEP>());
        let to = out.get_mut(filled..).and_then(|rest| rest.first_chunk_mut::<STEP>());
        let (Some(from), Some(to)) = (from, to) else { return (offset, filled) };
        *to = *from;
        let clean = count_clean_bytes(from);
        offset += clean;
        filled += clean;
        if clean < STEP {
            return (offset, filled);
        }
    }
}

/// How many bytes come before the first 0xff.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn count_clean_bytes(from: &[u8; STEP]) -> usize {
    use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8};
    // SAFETY: SSE2 is part of x86-64, and both loads are within the 32 bytes.
    unsafe {
        let ones = _mm_set1_epi8(-1);
        let low = _mm_loadu_si128(from.as_ptr().cast());
        let high = _mm_loadu_si128(from.as_ptr().add(16).cast());
        let low = _mm_movemask_epi8(_mm_cmpeq_epi8(low, ones)) as u32;
        let high = _mm_movemask_epi8(_mm_cmpeq_epi8(high, ones)) as u32;
        (low | high << 16).trailing_zeros() as usize
    }
}

/// How many bytes come before the first 0xff.
#[cfg(not(target_arch = "x86_64"))]
fn count_clean_bytes(from: &[u8; STEP]) -> usize {
    from.iter().position(|byte| *byte == 0xff).unwrap_or(STEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unstuffed(file: &[u8]) -> (Vec<u8>, Progress) {
        let mut out = vec![0xee; 256];
        let start = Progress { offset: 0, filled: 0, has_ended: false };
        let end = unstuff(file, start, &mut out);
        out.truncate(end.filled);
        (out, end)
    }

    #[test]
    fn stuffed_zeros_are_left_out_wherever_they_are() {
        for before in 0..70 {
            let mut file = vec![7; before];
            file.extend([0xff, 0, 1, 0xff, 0xff, 0, 2, 0xff, 0xff, 0xd9, 3]);
            let (out, end) = unstuffed(&file);
            assert_eq!(out, [vec![7; before], vec![0xff, 1, 0xff, 2]].concat());
            assert!(end.has_ended);
            assert_eq!(file[end.offset..end.offset + 2], [0xff, 0xd9]);
        }
    }

    #[test]
    fn it_stops_where_the_output_is_full_and_where_the_file_ends() {
        let file = [vec![1; 300], vec![0xff]].concat();
        let (out, end) = unstuffed(&file);
        assert!(out.len() + STEP > 256 && end.offset == out.len() && !end.has_ended);
        let (out, end) = unstuffed(&file[200..]);
        assert_eq!((out.len(), end.offset, end.has_ended), (100, 100, true));
    }
}
