//! How many items a call of a network takes: as many as suit the device, fewer while it lacks memory for them.

use crate::traits::ModelError;

/// Calls without a lack of memory after which the bucket is enlarged again: what took the memory, such as another process
/// on the device, may have ended. Each attempt that is too early costs one call, and twice as many calls pass before the
/// next one.
const CALLS_BEFORE_GROWTH: u32 = 64;

/// The most calls before an attempt: some minutes of work.
const MOST_CALLS_BEFORE_GROWTH: u32 = 4096;

/// Inputs have as many items as a power of this: 1, 4, 16 and 64.
///
/// A device prepares a network for each shape that it has not seen, for up to 5 s on an H200 (cuDNN compiles what it fuses), and
/// keeps memory for it: all these shapes take a third more than the largest alone.
const GROWTH: usize = 4;

/// Items of an input for `count` items. The results of those beyond `count` are not read.
pub fn padded(count: usize) -> usize {
    let below = largest_power(count);
    if below == count { count } else { below * GROWTH }
}

/// Items of the next call, of `count` that may be in it: all, or those of the next smaller input where the larger one would be
/// half empty. A call of four takes less time than two of one: on a GPU these are launches of layers alone.
fn next_call(count: usize) -> usize {
    let below = largest_power(count);
    if below == 1 || count > GROWTH / 2 * below { count } else { below }
}

/// The largest number of items of an input that is not above `count`, which is at least 1.
fn largest_power(count: usize) -> usize {
    let mut power = 1;
    while power * GROWTH <= count {
        power *= GROWTH;
    }
    power
}

/// The most items per call. A lack of memory makes it the next smaller one, many calls without one the next larger one, up to
/// what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    most: usize,
    size: usize,
    calls_since_change: u32,
    /// Calls before the next attempt to enlarge it.
    calls_before_growth: u32,
    /// Whether no call since it was enlarged took as many items as it allows.
    is_growth_untried: bool,
}

impl Bucket {
    /// A bucket of the items of the largest input with at most `most`.
    pub fn new(most: usize) -> Self {
        let most = largest_power(most.max(1));
        Self {
            most,
            size: most,
            calls_since_change: 0,
            calls_before_growth: CALLS_BEFORE_GROWTH,
            is_growth_untried: false,
        }
    }

    /// The bucket for larger items: of the next smaller input.
    #[must_use]
    pub fn smaller(self) -> Self {
        Self::new((self.most / GROWTH).max(1))
    }

    /// Whether a call may have several items, now or once there is memory.
    pub fn has_several(&self) -> bool {
        self.most > 1
    }

    /// Items that the next call takes at most.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Calls a network on all items, in their order and in few calls.
    ///
    /// # Errors
    /// `OutOfMemory` when there is too little for a single item, and any other error of a call.
    pub fn run<I, O>(
        &mut self,
        items: &[I],
        mut call: impl FnMut(&[I]) -> Result<Vec<O>, ModelError>,
    ) -> Result<Vec<O>, ModelError> {
        let mut outputs = Vec::with_capacity(items.len());
        let mut remaining = items;
        while !remaining.is_empty() {
            let count = next_call(remaining.len().min(self.size));
            match call(&remaining[..count]) {
                Ok(found) => {
                    outputs.extend(found);
                    remaining = &remaining[count..];
                    self.note_success(count);
                }
                Err(ModelError::OutOfMemory { name, detail }) if count > 1 => {
                    let is_known = self.is_growth_untried;
                    self.note_failure(count);
                    let size = self.size;
                    // Of a device that has too little memory for good, the log says so once.
                    if !is_known {
                        tracing::warn!(name, detail, size, "the device lacks memory, calls take fewer items");
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(outputs)
    }

    fn note_success(&mut self, count: usize) {
        if self.is_growth_untried && padded(count) == self.size {
            self.is_growth_untried = false;
            self.calls_before_growth = CALLS_BEFORE_GROWTH;
        }
        self.calls_since_change += 1;
        if self.size < self.most && self.calls_since_change >= self.calls_before_growth {
            self.size *= GROWTH;
            self.calls_since_change = 0;
            self.is_growth_untried = true;
        }
    }

    fn note_failure(&mut self, count: usize) {
        if self.is_growth_untried {
            self.calls_before_growth = (self.calls_before_growth * 2).min(MOST_CALLS_BEFORE_GROWTH);
        }
        self.size = (padded(count) / GROWTH).max(1);
        self.calls_since_change = 0;
        self.is_growth_untried = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out_of_memory() -> ModelError {
        ModelError::OutOfMemory { name: "doubler".into(), detail: "no".into() }
    }

    /// Doubles numbers on a device with memory for so many at once; notes the sizes of all calls.
    fn double(bucket: &mut Bucket, items: &[u32], memory: usize, calls: &mut Vec<usize>) -> Vec<u32> {
        let call = |part: &[u32]| {
            calls.push(part.len());
            if part.len() > memory { Err(out_of_memory()) } else { Ok(part.iter().map(|n| n * 2).collect()) }
        };
        bucket.run(items, call).unwrap()
    }

    #[test]
    fn a_lack_of_memory_makes_calls_smaller_and_loses_nothing() {
        let (mut bucket, mut calls) = (Bucket::new(16), Vec::new());
        let items: Vec<u32> = (0..20).collect();
        let doubled = double(&mut bucket, &items, 5, &mut calls);
        assert_eq!(doubled, items.iter().map(|n| n * 2).collect::<Vec<_>>());
        assert_eq!(calls, [16, 4, 4, 4, 4, 4]);
        calls.clear();
        double(&mut bucket, &items[..6], 5, &mut calls);
        assert_eq!(calls, [4, 2], "the next batch begins where the last one ended");
    }

    #[test]
    fn a_padded_input_that_does_not_fit_makes_them_smaller_too() {
        let (mut bucket, mut calls) = (Bucket::new(64), Vec::new());
        let call = |part: &[u32]| {
            calls.push(part.len());
            if padded(part.len()) > 32 { Err(out_of_memory()) } else { Ok(part.to_vec()) }
        };
        assert_eq!(bucket.run(&[7; 48], call).unwrap(), [7; 48]);
        assert_eq!(calls, [48, 16, 16, 16]);
    }

    #[test]
    fn inputs_have_few_shapes_and_are_at_least_half_full() {
        let shapes: std::collections::BTreeSet<usize> = (1..=64).map(padded).collect();
        assert_eq!(shapes.into_iter().collect::<Vec<_>>(), [1, 4, 16, 64]);
        for count in 1..=200 {
            let (mut calls, items) = (Vec::new(), vec![1; count]);
            double(&mut Bucket::new(64), &items, 64, &mut calls);
            assert_eq!(calls.iter().sum::<usize>(), count);
            assert!(calls.iter().all(|items| 2 * items >= padded(*items)), "{count}: {calls:?}");
        }
        let calls_of = |count| {
            let mut calls = Vec::new();
            double(&mut Bucket::new(16), &vec![1; count], 16, &mut calls);
            calls
        };
        assert_eq!((calls_of(3), calls_of(9)), (vec![3], vec![9]));
        assert_eq!((calls_of(2), calls_of(6), calls_of(21)), (vec![2], vec![4, 2], vec![16, 4, 1]));
        assert_eq!(Bucket::new(40).size(), 16);
    }

    #[test]
    fn the_bucket_grows_again_when_there_is_memory() {
        let (mut bucket, mut calls) = (Bucket::new(16), Vec::new());
        double(&mut bucket, &[0; 16], 2, &mut calls);
        assert_eq!(bucket.size(), 1);
        for _ in 0..2 * CALLS_BEFORE_GROWTH {
            double(&mut bucket, &[0], 16, &mut calls);
        }
        assert_eq!(bucket.size(), 16);
    }

    #[test]
    fn a_device_that_lacks_memory_for_good_is_asked_ever_less_often() {
        let (mut bucket, mut calls) = (Bucket::new(16), Vec::new());
        for _ in 0..500 {
            double(&mut bucket, &[1; 16], 4, &mut calls);
        }
        let failed = calls.iter().filter(|items| **items > 4).count();
        assert_eq!(failed, 6, "at first, then after 64, 128, 256, 512 and 1024 of {} calls", calls.len());
    }

    #[test]
    fn one_item_that_does_not_fit_and_other_errors_end_the_call() {
        let mut bucket = Bucket::new(4);
        let error = bucket.run(&[1, 2], |_: &[u32]| Err::<Vec<u32>, _>(out_of_memory())).unwrap_err();
        assert!(matches!(error, ModelError::OutOfMemory { .. }), "{error}");
        let mut calls = 0;
        let lost = |_: &[u32]| {
            calls += 1;
            Err::<Vec<u32>, _>(ModelError::Device { device: "cuda".into(), detail: "lost".into() })
        };
        assert!(Bucket::new(4).run(&[1, 2, 3], lost).is_err());
        assert_eq!(calls, 1);
    }
}
