//! Which vector instructions the processor has, asked once a decoder. Code that is compiled for them takes a proof that
//! they are there.

/// The instructions to use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cpu {
    /// Those that every processor of the target has.
    Portable,
    /// AVX2 and the bit instructions that came with it.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
}

/// Proof that the processor has AVX2, BMI1, BMI2, LZCNT and MOVBE: made by [`Avx2::detect`] only.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl Cpu {
    /// Returns the best of what this processor has.
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx2) = Avx2::detect() {
            return Self::Avx2(avx2);
        }
        Self::Portable
    }
}

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    fn detect() -> Option<Self> {
        Self::is_detected().then_some(Self(()))
    }

    /// Whether the processor has all that this proves; the standard library remembers it.
    pub(crate) fn is_detected() -> bool {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("movbe")
    }
}
