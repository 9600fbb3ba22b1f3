//! Asks a network about a batch and tells whose fault a failure is: a photo that a sound network refuses is poison,
//! a network that refuses everything is an outage. Without the difference one bad photo would come back, and take
//! the pipeline down, for ever.

use photofinish_kernels::frame::{Frame, Picture, Size};
use photofinish_models::traits::ModelError;
use photofinish_store::model::photo::FailureReason;

use crate::engine::fault::{Outage, Poison};
use crate::engine::stage::BatchResults;

/// Side of the plain grey picture that a sound network looks at without failing.
const GREY_SIDE: u32 = 64;

const GREY_PIXELS: [u8; (GREY_SIDE * GREY_SIDE * 3) as usize] = [128; (GREY_SIDE * GREY_SIDE * 3) as usize];

/// A picture that nobody can mind.
pub(crate) fn grey_frame() -> Frame<'static> {
    Frame::new(&GREY_PIXELS, GREY_SIDE, GREY_SIDE).expect("the constant has width * height * 3 bytes")
}

/// A picture that nobody can mind, of the size of one that a network failed on: a device that is short of memory for the
/// one is short of it for the other. No side is so short that the shape itself would be the reason.
pub(crate) fn grey_picture(size: Size) -> Picture {
    let (width, height) = (size.width.max(GREY_SIDE), size.height.max(GREY_SIDE));
    let pixels = vec![128; width as usize * height as usize * 3];
    Picture::new(pixels, width, height).expect("made of width * height * 3 bytes")
}

/// How to ask a network, and how to find out whether it is sound.
pub(crate) struct BatchInference<N: ?Sized, I, O> {
    /// One answer per item, in order.
    pub(crate) run: fn(&mut N, &[I]) -> Result<Vec<O>, ModelError>,
    /// Asks about something that a sound network answers.
    pub(crate) self_test: fn(&mut N, &I, SelfTest) -> Result<(), ModelError>,
}

/// How much is asked of a network that is to prove itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SelfTest {
    /// As much as the item did that it failed on.
    SameSize,
    /// As little as can be.
    Minimal,
}

impl<N: ?Sized, I, O> BatchInference<N, I, O> {
    /// Asks about all items at once; when that fails, about each alone.
    ///
    /// # Errors
    /// When the network does not serve.
    pub(crate) fn infer_batch(&self, network: &mut N, items: &[I]) -> Result<BatchResults<O>, Outage> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let error = match self.run_checked(network, items) {
            Ok(answers) => return Ok(answers.into_iter().map(Ok).collect()),
            Err(error) => error,
        };
        if let [item] = items {
            return self.classify_failure(network, item, error).map(|poison| vec![Err(poison)]);
        }
        let alone = items.iter().map(|item| match self.run_checked(network, std::slice::from_ref(item)) {
            Ok(answers) => Ok(answers.into_iter().map(Ok).collect::<BatchResults<O>>()),
            Err(error) => self.classify_failure(network, item, error).map(|poison| vec![Err(poison)]),
        });
        Ok(alone.collect::<Result<Vec<_>, Outage>>()?.into_iter().flatten().collect())
    }

    fn run_checked(&self, network: &mut N, items: &[I]) -> Result<Vec<O>, ModelError> {
        let answers = (self.run)(network, items)?;
        if answers.len() == items.len() {
            return Ok(answers);
        }
        Err(ModelError::Inference {
            name: "network".to_owned(),
            detail: format!("{} answers for {} items", answers.len(), items.len()),
        })
    }

    /// Who is to blame for the error that the network gave when asked about the item alone.
    fn classify_failure(&self, network: &mut N, item: &I, error: ModelError) -> Result<Poison, Outage> {
        let is_refusal = matches!(error, ModelError::Inference { .. });
        if is_refusal && (self.self_test)(network, item, SelfTest::SameSize).is_ok() {
            return Ok(Poison::new(FailureReason::ProcessingCrashed, error.to_string()));
        }
        // A network that serves others and has no room for this one may have it later, or never: an attempt counts, so
        // that a photo which is too large for the device ends and does not stop all others for ever.
        let is_suspicious = is_refusal && (self.self_test)(network, item, SelfTest::Minimal).is_ok();
        Err(Outage { counts_as_attempt: is_suspicious, ..Outage::from(error) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Doubler {
        is_broken: bool,
        /// Numbers above are too large for its memory.
        max_value: Option<u32>,
    }

    fn double(network: &mut Doubler, items: &[u32]) -> Result<Vec<u32>, ModelError> {
        let is_short = items.iter().any(|item| network.max_value.is_some_and(|memory| *item > memory));
        if network.is_broken || is_short || items.contains(&13) {
            return Err(ModelError::Inference { name: "doubler".into(), detail: "no".into() });
        }
        Ok(items.iter().map(|item| item * 2).collect())
    }

    /// A number as large as the item stands for it, and is never 13.
    const DOUBLE: BatchInference<Doubler, u32, u32> = BatchInference {
        run: double,
        self_test: |network, item, proof| {
            let even = if proof == SelfTest::SameSize { *item & !1 } else { 0 };
            double(network, &[even]).map(drop)
        },
    };

    #[test]
    fn an_item_that_a_healthy_network_rejects_is_poison() {
        let answers = DOUBLE.infer_batch(&mut Doubler::default(), &[1, 13, 3]).unwrap();
        assert_eq!(answers[0], Ok(2));
        assert_eq!(answers[1].as_ref().unwrap_err().reason, FailureReason::ProcessingCrashed);
        assert_eq!(answers[2], Ok(6));
        let alone = DOUBLE.infer_batch(&mut Doubler::default(), &[13]).unwrap();
        assert!(alone[0].is_err());
    }

    #[test]
    fn a_network_that_refuses_everything_is_an_outage() {
        let lost = || Doubler { is_broken: true, max_value: None };
        for items in [&[1, 2][..], &[1]] {
            assert!(!DOUBLE.infer_batch(&mut lost(), items).unwrap_err().counts_as_attempt);
        }
    }

    #[test]
    fn a_network_that_lacks_memory_for_an_item_is_an_outage_for_it() {
        let mut short = Doubler { is_broken: false, max_value: Some(100) };
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
