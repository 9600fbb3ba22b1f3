//! A row of samples.

/// One row of samples: brightness and both colours, each as long as the row of pixels or longer.
#[derive(Clone, Copy)]
pub(crate) struct YccRow<'a> {
    pub(crate) y: &'a [u8],
    pub(crate) cb: &'a [u8],
    pub(crate) cr: &'a [u8],
}
