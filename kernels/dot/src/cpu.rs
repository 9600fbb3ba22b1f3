//! Which vector instructions the processor has. Code that is compiled for them takes a proof that they are there.

/// The instructions to use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cpu {
    /// Those that every processor of the target has.
    Portable,
    /// AVX2.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// AVX-512 with its dot products of bytes.
    #[cfg(target_arch = "x86_64")]
    Vnni(Vnni),
}

/// Proof that the processor has AVX2: made by [`Avx2::detect`] only.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

/// Proof that the processor has AVX-512 F, BW and VNNI: made by [`Vnni::detect`] only.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vnni(());

impl Cpu {
    /// Returns the best of what this processor has.
    pub(crate) fn detect() -> Self {
        Self::list_supported().pop().unwrap_or(Self::Portable)
    }

    /// Returns all that this processor has, the best last.
    pub(crate) fn list_supported() -> Vec<Self> {
        let mut supported = vec![Self::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            supported.extend(Avx2::detect().map(Self::Avx2));
            supported.extend(Vnni::detect().map(Self::Vnni));
        }
        supported
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Self::Vnni(_) => "AVX-512 VNNI",
        }
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
    }
}

#[cfg(target_arch = "x86_64")]
impl Vnni {
    fn detect() -> Option<Self> {
        Self::is_detected().then_some(Self(()))
    }

    /// Whether the processor has all that this proves; the standard library remembers it.
    pub(crate) fn is_detected() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vnni")
    }
}
