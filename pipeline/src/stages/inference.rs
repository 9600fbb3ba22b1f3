//! Runs a network on a batch and tells failures of an item from failures of the network: an item that a healthy network
//! rejects is poison; a network that fails on everything is an outage. Otherwise one bad photo would be retried, and
//! take the pipeline down, forever.

use photofinish_kernels::image::frame::{Frame, Picture, Size};
use photofinish_models::traits::ModelError;
use photofinish_store::model::photo::FailureReason;

use crate::engine::fault::{Outage, Poison};
use crate::engine::stage::BatchResults;

/// Side of the grey picture for self-tests, pixels.
const GREY_SIDE: u32 = 64;

const GREY_PIXELS: [u8; (GREY_SIDE * GREY_SIDE * 3) as usize] = [128; (GREY_SIDE * GREY_SIDE * 3) as usize];

/// A small grey frame that a healthy network must accept.
pub(crate) fn grey_frame() -> Frame<'static> {
    Frame::new(&GREY_PIXELS, GREY_SIDE, GREY_SIDE).expect("the constant has width * height * 3 bytes")
}

/// A grey picture of the size of one that a network failed on: it fails too if the device has too little memory for that
/// size. Its sides are at least [`GREY_SIDE`], so that it does not fail because of an extreme shape.
pub(crate) fn grey_picture(size: Size) -> Picture {
    let (width, height) = (size.width.max(GREY_SIDE), size.height.max(GREY_SIDE));
    let pixels = vec![128; width as usize * height as usize * 3];
    Picture::new(pixels, width, height).expect("the buffer has width * height * 3 bytes")
}

/// How to run a network on a batch, and how to test whether the network is healthy.
pub(crate) struct BatchInference<N: ?Sized, I, O> {
    /// Runs the network; one output per item, in order.
    pub(crate) run: fn(&mut N, &[I]) -> Result<Vec<O>, ModelError>,
    /// Runs the network on an input that a healthy network accepts; the item is the one that it failed on.
    pub(crate) self_test: fn(&mut N, &I, SelfTest) -> Result<(), ModelError>,
}

/// The input of a self-test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SelfTest {
    /// As large as the item that the network failed on.
    SameSize,
    /// As small as possible.
    Minimal,
}

impl<N: ?Sized, I, O> BatchInference<N, I, O> {
    /// Runs the network on all items at once; when that fails, on each half, down to the items that fail alone. So one bad
    /// item costs its mates a few calls and nothing else.
    ///
    /// # Errors
    /// When the network is not healthy, its device is lost or has too little memory for an item, or it was interrupted.
    pub(crate) fn infer_batch(&self, network: &mut N, items: &[I]) -> Result<BatchResults<O>, Outage> {
        let mut results = Vec::with_capacity(items.len());
        self.infer_part(network, items, &mut results)?;
        Ok(results)
    }

    fn infer_part(&self, network: &mut N, items: &[I], results: &mut BatchResults<O>) -> Result<(), Outage> {
        if items.is_empty() {
            return Ok(());
        }
        let error = match self.run_checked(network, items) {
            Ok(outputs) => {
                results.extend(outputs.into_iter().map(Ok));
                return Ok(());
            }
            // Fewer items would fail as these do.
            Err(error @ ModelError::Interrupted) => return Err(error.into()),
            Err(error @ ModelError::Device { .. }) => return Err(to_counted_outage(error)),
            Err(error) => error,
        };
        if let [item] = items {
            results.push(self.classify_failure(network, item, error)?);
            return Ok(());
        }
        let (first, second) = items.split_at(items.len() / 2);
        self.infer_part(network, first, results)?;
        self.infer_part(network, second, results)
    }

    /// Runs the network and checks that it returned one output per item.
    fn run_checked(&self, network: &mut N, items: &[I]) -> Result<Vec<O>, ModelError> {
        let outputs = (self.run)(network, items)?;
        if outputs.len() == items.len() {
            return Ok(outputs);
        }
        Err(ModelError::Inference {
            name: "network".to_owned(),
            detail: format!("{} outputs for {} items", outputs.len(), items.len()),
        })
    }

    /// Decides whether an error for a single item is the item's fault (poison), the network's (an outage), or nobody's: one
    /// that does not come again was the device's, and the item has its output.
    fn classify_failure(
        &self,
        network: &mut N,
        item: &I,
        error: ModelError,
    ) -> Result<Result<O, Poison>, Outage> {
        if matches!(error, ModelError::Interrupted) {
            return Err(error.into());
        }
        let is_inference_error =
            matches!(error, ModelError::Inference { .. } | ModelError::OutOfMemory { .. });
        if is_inference_error && self.passes(network, item, SelfTest::SameSize)? {
            return match self.run_checked(network, std::slice::from_ref(item)) {
                Ok(output) => Ok(output.into_iter().next().ok_or_else(|| to_poison(&error))),
                Err(error @ ModelError::Inference { .. }) => Ok(Err(to_poison(&error))),
                // As for a device that lacks memory, or is lost, at once.
                Err(error @ (ModelError::OutOfMemory { .. } | ModelError::Device { .. })) => {
                    Err(to_counted_outage(error))
                }
                Err(error) => Err(error.into()),
            };
        }
        // A healthy network that lacks memory for this size may have it later, or never. The attempt counts, so that a
        // photo which is too large for the device fails at some point and does not stop all others forever.
        let is_healthy = self.passes(network, item, SelfTest::Minimal)?;
        Err(Outage { counts_as_attempt: is_inference_error && is_healthy, ..Outage::from(error) })
    }

    /// Whether the network passes a self-test.
    ///
    /// # Errors
    /// When it meets a lost device. CUDA's libraries may have been the first to notice, by an error that does not say so: the
    /// item may be why.
    fn passes(&self, network: &mut N, item: &I, kind: SelfTest) -> Result<bool, Outage> {
        match (self.self_test)(network, item, kind) {
            Ok(()) => Ok(true),
            Err(error @ ModelError::Device { .. }) => Err(to_counted_outage(error)),
            Err(_) => Ok(false),
        }
    }
}

/// An outage of which an item may be the reason. The attempt counts, so that such a photo fails at some point and does not take
/// the device from all others forever.
fn to_counted_outage(error: ModelError) -> Outage {
    Outage { counts_as_attempt: true, ..Outage::from(error) }
}

fn to_poison(error: &ModelError) -> Poison {
    Poison::new(FailureReason::ProcessingCrashed, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Doubler {
        /// Calls so far.
        calls: usize,
        /// The call that fails, counted from 1.
        fails_at: usize,
        is_interrupted: bool,
        /// Calls after so many meet a lost device.
        lost_after: Option<usize>,
        is_broken: bool,
        /// Larger numbers fail, as if the device lacked memory for them.
        max_value: Option<u32>,
        /// Calls with an odd number lack memory, as on a device that others use too.
        lacks_memory_at_times: bool,
    }

    fn double(network: &mut Doubler, items: &[u32]) -> Result<Vec<u32>, ModelError> {
        network.calls += 1;
        if network.lost_after.is_some_and(|calls| network.calls > calls) {
            return Err(ModelError::Device { device: "cuda".into(), detail: "lost".into() });
        }
        if network.is_interrupted {
            return Err(ModelError::Interrupted);
        }
        if network.lacks_memory_at_times && network.calls % 2 == 1 {
            return Err(ModelError::OutOfMemory { name: "doubler".into(), detail: "no memory".into() });
        }
        let lacks_memory = items.iter().any(|item| network.max_value.is_some_and(|memory| *item > memory));
        if network.is_broken || network.calls == network.fails_at || lacks_memory || items.contains(&13) {
            return Err(ModelError::Inference { name: "doubler".into(), detail: "no".into() });
        }
        Ok(items.iter().map(|item| item * 2).collect())
    }

    /// The self-test of the same size takes the next lower even number, which is never 13.
    const DOUBLE: BatchInference<Doubler, u32, u32> = BatchInference {
        run: double,
        self_test: |network, item, kind| {
            let even = if kind == SelfTest::SameSize { *item & !1 } else { 0 };
            double(network, &[even]).map(drop)
        },
    };

    #[test]
    fn an_item_that_a_healthy_network_rejects_is_poison() {
        let results = DOUBLE.infer_batch(&mut Doubler::default(), &[1, 13, 3]).unwrap();
        assert_eq!(results[0], Ok(2));
        assert_eq!(results[1].as_ref().unwrap_err().reason, FailureReason::ProcessingCrashed);
        assert_eq!(results[2], Ok(6));
        let alone = DOUBLE.infer_batch(&mut Doubler::default(), &[13]).unwrap();
        assert!(alone[0].is_err());
    }

    #[test]
    fn a_bad_item_of_a_large_batch_is_found_by_halves() {
        let mut network = Doubler::default();
        let items: Vec<u32> = (0..64).collect();
        let results = DOUBLE.infer_batch(&mut network, &items).unwrap();
        let bad: Vec<usize> = (0..64).filter(|&item| results[item].is_err()).collect();
        assert_eq!(bad, [13]);
        assert_eq!(results[63], Ok(126));
        assert!(network.calls <= 16, "{} calls for a bad item of 64", network.calls);
    }

    #[test]
    fn a_failure_that_does_not_come_again_costs_no_item() {
        let mut network = Doubler { fails_at: 1, ..Doubler::default() };
        assert_eq!(DOUBLE.infer_batch(&mut network, &[4]).unwrap(), [Ok(8)]);
    }

    #[test]
    fn a_lost_device_is_an_outage_after_one_call_and_counts_an_attempt() {
        let mut lost = Doubler { lost_after: Some(0), ..Doubler::default() };
        let outage = DOUBLE.infer_batch(&mut lost, &[1, 2, 3]).unwrap_err();
        assert!(outage.counts_as_attempt && outage.is_of_device());
        assert_eq!(lost.calls, 1);
    }

    /// As cuDNN and cuBLAS do, whose errors have no number of CUDA.
    #[test]
    fn a_lost_device_that_another_error_announces_counts_an_attempt() {
        for (lost_after, calls) in [(1, 2), (2, 3)] {
            let mut lost = Doubler { fails_at: 1, lost_after: Some(lost_after), ..Doubler::default() };
            let outage = DOUBLE.infer_batch(&mut lost, &[1]).unwrap_err();
            assert!(outage.counts_as_attempt && outage.is_of_device(), "{outage:?}");
            assert_eq!(lost.calls, calls, "the photo, the self-test, the photo again");
        }
    }

    #[test]
    fn a_lack_of_memory_that_comes_and_goes_fails_no_photo() {
        let mut busy = Doubler { lacks_memory_at_times: true, ..Doubler::default() };
        let outage = DOUBLE.infer_batch(&mut busy, &[1]).unwrap_err();
        assert!(outage.counts_as_attempt);
        assert_eq!(busy.calls, 3, "the photo, the self-test, the photo again");
    }

    #[test]
    fn a_network_that_refuses_everything_is_an_outage() {
        let broken = || Doubler { is_broken: true, ..Doubler::default() };
        for items in [&[1, 2][..], &[1]] {
            assert!(!DOUBLE.infer_batch(&mut broken(), items).unwrap_err().counts_as_attempt);
        }
    }

    #[test]
    fn an_interrupted_network_fails_no_item_and_counts_no_attempt() {
        let mut interrupted = Doubler { is_interrupted: true, ..Doubler::default() };
        for items in [&[1, 13][..], &[13]] {
            assert!(!DOUBLE.infer_batch(&mut interrupted, items).unwrap_err().counts_as_attempt);
        }
    }

    #[test]
    fn a_network_that_lacks_memory_for_an_item_is_an_outage_for_it() {
        let mut short = Doubler { max_value: Some(100), ..Doubler::default() };
        assert_eq!(DOUBLE.infer_batch(&mut short, &[100]).unwrap(), [Ok(200)]);
        for items in [&[200][..], &[1, 200]] {
            assert!(DOUBLE.infer_batch(&mut short, items).unwrap_err().counts_as_attempt);
        }
    }

    #[test]
    fn a_grey_picture_has_the_size_of_the_original_and_a_minimum_side() {
        let size = Size { width: 300, height: 200 };
        assert_eq!(grey_picture(size).size(), size);
        let thin = Size { width: 300, height: 1 };
        assert_eq!(grey_picture(thin).size(), Size { width: 300, height: GREY_SIDE });
    }
}
