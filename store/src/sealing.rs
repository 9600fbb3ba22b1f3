//! Secrets in the database are sealed: encrypted and authenticated with a key that is not in the database. Whoever has a
//! backup of the database has none of them.
//!
//! Each purpose has a key of its own, derived from the master secret by HKDF (RFC 5869) with SHA-256. A sealed secret is one
//! byte (the version, 1), a random nonce of 12 bytes, and the ciphertext with its tag by ChaCha20-Poly1305 (RFC 8439). Its row
//! is authenticated too: a sealed secret that is copied to another row cannot be opened there.

use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use uuid::Uuid;

use crate::error::{StoreError, StoreErrorKind};

type Result<T> = std::result::Result<T, StoreError>;

/// The version of [`MasterSecret::seal`], its first byte.
const VERSION: u8 = 1;

/// The secret from which all keys that seal are derived.
#[derive(Clone)]
pub struct MasterSecret {
    current: [u8; 32],
    /// The secret before, until everything is sealed with the current one.
    old: Option<[u8; 32]>,
}

/// Shows no secret.
impl std::fmt::Debug for MasterSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MasterSecret")
    }
}

/// What is sealed.
#[derive(Clone, Copy)]
pub(crate) enum Purpose {
    /// The secrets that sign webhooks.
    Webhook,
    /// The secrets of the digests of erased bibs.
    ErasedBib,
    /// The links of galleries.
    GalleryLink,
}

impl Purpose {
    const fn label(self) -> &'static [u8] {
        match self {
            Self::Webhook => b"webhook",
            Self::ErasedBib => b"erased",
            Self::GalleryLink => b"link",
        }
    }
}

/// What is signed with a key that is derived and stored nowhere.
#[derive(Clone, Copy)]
pub(crate) enum SigningPurpose {
    /// Receipts of erasures.
    Receipt,
    /// What a caller is shown before an erasure and sends back.
    Confirmation,
    /// Digests in place of visitors and networks that are counted.
    Visitor,
}

impl SigningPurpose {
    const fn label(self) -> &'static [u8] {
        match self {
            Self::Receipt => b"receipt",
            Self::Confirmation => b"confirmation",
            Self::Visitor => b"visitor",
        }
    }
}

/// A secret that was opened.
pub(crate) struct Opened {
    pub(crate) secret: Vec<u8>,
    /// Whether it was sealed with the old master secret.
    pub(crate) is_old: bool,
}

/// The secret of digests that are counted in place of visitors and networks.
#[derive(Clone)]
pub struct VisitorSecret([u8; 32]);

impl VisitorSecret {
    /// One that nobody else has: what is counted with it is another's after the next start.
    pub fn random() -> Self {
        let mut secret = [0; 32];
        // Without random numbers of the operating system there are no secrets to keep either.
        SystemRandom::new().fill(&mut secret).expect("the operating system gives random numbers");
        Self(secret)
    }

    /// Returns the HMAC-SHA256 of a message.
    pub fn digest(&self, message: &[u8]) -> [u8; 32] {
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &self.0), message);
        tag.as_ref().try_into().expect("a digest of SHA-256 has 32 bytes")
    }
}

impl MasterSecret {
    /// Returns the secret of digests that are counted in place of visitors and networks.
    pub fn visitor_secret(&self) -> VisitorSecret {
        VisitorSecret(self.derive_signing_seed(SigningPurpose::Visitor))
    }

    /// The secret with which is sealed, and the one before it.
    pub fn new(current: [u8; 32], old: Option<[u8; 32]>) -> Self {
        Self { current, old }
    }

    /// Returns the 32 bytes of which a key to sign with is made: the same ones until the master secret changes.
    pub(crate) fn derive_signing_seed(&self, purpose: SigningPurpose) -> [u8; 32] {
        let derived = Salt::new(HKDF_SHA256, &[]).extract(&self.current);
        let info = [purpose.label()];
        let mut seed = [0; 32];
        let bytes = derived.expand(&info, HKDF_SHA256).expect("a seed is shorter than HKDF's limit");
        bytes.fill(&mut seed).expect("the digest of SHA-256 has 32 bytes");
        seed
    }

    /// Makes a secret of random bytes.
    ///
    /// # Errors
    /// `Unavailable` when the operating system gives none.
    pub(crate) fn make_secret(&self) -> Result<[u8; 32]> {
        let mut secret = [0; 32];
        let failed = |_| StoreError::new(StoreErrorKind::Unavailable, "make a secret");
        SystemRandom::new().fill(&mut secret).map_err(failed)?;
        Ok(secret)
    }

    /// Seals a secret for a row.
    ///
    /// # Errors
    /// `Unavailable` when the operating system gives no random bytes.
    pub(crate) fn seal(&self, purpose: Purpose, row: Uuid, secret: &[u8]) -> Result<Vec<u8>> {
        let failed = |_| StoreError::new(StoreErrorKind::Unavailable, "seal a secret");
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(failed)?;
        let mut sealed = secret.to_vec();
        derive_key(&self.current, purpose)
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(row.as_bytes()),
                &mut sealed,
            )
            .map_err(failed)?;
        Ok([&[VERSION], &nonce[..], &sealed].concat())
    }

    /// Opens what was sealed for a row.
    ///
    /// # Errors
    /// `Corrupt` when it was sealed with another master secret, for another row, or was changed.
    pub(crate) fn open(&self, purpose: Purpose, row: Uuid, sealed: &[u8]) -> Result<Opened> {
        let candidates = [Some(&self.current), self.old.as_ref()];
        for (i, master) in candidates.into_iter().enumerate() {
            if let Some(secret) = master.and_then(|master| open_with(master, purpose, row, sealed)) {
                return Ok(Opened { secret, is_old: i > 0 });
            }
        }
        Err(StoreError::new(StoreErrorKind::Corrupt, "a secret sealed with another master secret"))
    }
}

fn open_with(master: &[u8; 32], purpose: Purpose, row: Uuid, sealed: &[u8]) -> Option<Vec<u8>> {
    let rest = sealed.strip_prefix(&[VERSION])?;
    let (nonce, ciphertext) = rest.split_first_chunk::<NONCE_LEN>()?;
    let mut bytes = ciphertext.to_vec();
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let key = derive_key(master, purpose);
    let opened = key.open_in_place(nonce, Aad::from(row.as_bytes()), &mut bytes).ok()?;
    Some(opened.to_vec())
}

fn derive_key(master: &[u8; 32], purpose: Purpose) -> LessSafeKey {
    let derived = Salt::new(HKDF_SHA256, &[]).extract(master);
    let info = [purpose.label()];
    let key = derived.expand(&info, &CHACHA20_POLY1305).expect("a key is shorter than HKDF's limit");
    LessSafeKey::new(UnboundKey::from(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_secret_opens_in_its_row_alone_and_is_never_the_same_twice() {
        let (master, row) = (MasterSecret::new([7; 32], None), Uuid::now_v7());
        let sealed = master.seal(Purpose::Webhook, row, b"signs webhooks").unwrap();
        assert_eq!(master.open(Purpose::Webhook, row, &sealed).unwrap().secret, b"signs webhooks");
        assert_ne!(master.seal(Purpose::Webhook, row, b"signs webhooks").unwrap(), sealed);
        assert!(!sealed.windows(5).any(|part| part == b"signs"));
        assert!(master.open(Purpose::Webhook, Uuid::now_v7(), &sealed).is_err());
        for place in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[place] ^= 1;
            assert!(master.open(Purpose::Webhook, row, &changed).is_err(), "byte {place}");
            assert!(master.open(Purpose::Webhook, row, &sealed[..place]).is_err());
        }
    }

    #[test]
    fn the_old_master_secret_still_opens_and_another_does_not() {
        let row = Uuid::now_v7();
        let sealed = MasterSecret::new([1; 32], None).seal(Purpose::Webhook, row, b"secret").unwrap();
        let opened = MasterSecret::new([2; 32], Some([1; 32])).open(Purpose::Webhook, row, &sealed).unwrap();
        assert_eq!((opened.secret.as_slice(), opened.is_old), (&b"secret"[..], true));
        assert!(MasterSecret::new([2; 32], None).open(Purpose::Webhook, row, &sealed).is_err());
        assert_eq!(format!("{:?}", MasterSecret::new([1; 32], None)), "MasterSecret");
    }
}
