//! Asks a network about a batch and tells whose fault a failure is: a photo that a sound network refuses is poison,
//! a network that refuses everything is an outage. Without the difference one bad photo would come back, and take
//! the pipeline down, for ever.

use photofinish_kernels::frame::Frame;
use photofinish_models::traits::ModelError;
use photofinish_store::photo::FailureReason;

use crate::fault::{Outage, Poison};
use crate::stage::Answers;

/// Side of the plain grey picture that a sound network looks at without failing.
const PLAIN_SIDE: u32 = 64;

const PLAIN: [u8; (PLAIN_SIDE * PLAIN_SIDE * 3) as usize] = [128; (PLAIN_SIDE * PLAIN_SIDE * 3) as usize];

/// A picture that nobody can mind.
pub(crate) fn plain_frame() -> Frame<'static> {
    Frame::new(&PLAIN, PLAIN_SIDE, PLAIN_SIDE).expect("the constant has width * height * 3 bytes")
}

/// How to ask a network, and how to find out whether it is sound.
pub(crate) struct Question<N: ?Sized, I, O> {
    /// One answer per item, in order.
    pub(crate) ask: fn(&mut N, &[I]) -> Result<Vec<O>, ModelError>,
    /// Something that a sound network answers.
    pub(crate) prove: fn(&mut N) -> Result<(), ModelError>,
}

impl<N: ?Sized, I, O> Question<N, I, O> {
    /// Asks about all items at once; when that fails, about each alone.
    ///
    /// # Errors
    /// When the network does not serve.
    pub(crate) fn put(&self, network: &mut N, items: &[I]) -> Result<Answers<O>, Outage> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let error = match self.checked(network, items) {
            Ok(answers) => return Ok(answers.into_iter().map(Ok).collect()),
            Err(error) => error,
        };
        if items.len() == 1 {
            return self.blame(network, error).map(|poison| vec![Err(poison)]);
        }
        let alone = items.iter().map(|item| match self.checked(network, std::slice::from_ref(item)) {
            Ok(answers) => Ok(answers.into_iter().map(Ok).collect::<Answers<O>>()),
            Err(error) => self.blame(network, error).map(|poison| vec![Err(poison)]),
        });
        Ok(alone.collect::<Result<Vec<_>, Outage>>()?.into_iter().flatten().collect())
    }

    fn checked(&self, network: &mut N, items: &[I]) -> Result<Vec<O>, ModelError> {
        let answers = (self.ask)(network, items)?;
        if answers.len() == items.len() {
            return Ok(answers);
        }
        Err(ModelError::Inference {
            name: "network".to_owned(),
            detail: format!("{} answers for {} items", answers.len(), items.len()),
        })
    }

    fn blame(&self, network: &mut N, error: ModelError) -> Result<Poison, Outage> {
        if !matches!(error, ModelError::Inference { .. }) || (self.prove)(network).is_err() {
            return Err(Outage::from(error));
        }
        Ok(Poison::new(FailureReason::ProcessingCrashed, error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Doubler {
        is_lost: bool,
    }

    const DOUBLE: Question<Doubler, u32, u32> = Question {
        ask: |network, items| {
            if network.is_lost || items.contains(&13) {
                return Err(ModelError::Inference { name: "doubler".into(), detail: "no".into() });
            }
            Ok(items.iter().map(|item| item * 2).collect())
        },
        prove: |network| if network.is_lost { Err(ModelError::Runtime("lost".into())) } else { Ok(()) },
    };

    #[test]
    fn what_a_sound_network_refuses_is_poison_alone() {
        let answers = DOUBLE.put(&mut Doubler { is_lost: false }, &[1, 13, 3]).unwrap();
        assert_eq!(answers[0], Ok(2));
        assert_eq!(answers[1].as_ref().unwrap_err().reason, FailureReason::ProcessingCrashed);
        assert_eq!(answers[2], Ok(6));
        let alone = DOUBLE.put(&mut Doubler { is_lost: false }, &[13]).unwrap();
        assert!(alone[0].is_err());
    }

    #[test]
    fn a_network_that_refuses_everything_is_an_outage() {
        assert!(DOUBLE.put(&mut Doubler { is_lost: true }, &[1, 2]).is_err());
        assert!(DOUBLE.put(&mut Doubler { is_lost: true }, &[1]).is_err());
    }
}
