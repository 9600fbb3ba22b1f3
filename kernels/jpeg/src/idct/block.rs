//! What is transformed.

/// The coefficients of a block, row by row.
pub(crate) type Coefficients = [i16; 64];

/// A quantisation table, row by row.
pub(crate) type Quant = [i16; 64];
