//! Passwords: which are accepted, and their hashes (Argon2id, RFC 9106).

use std::sync::{Arc, OnceLock};

use argon2::password_hash::{PasswordHasher, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, PasswordHash, Version};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::errors::ApiError;

/// Memory of one hash, KiB; with [`PASSES`] the smallest parameters that OWASP recommends for Argon2id.
const MEMORY_KIB: u32 = 19 * 1024;
/// Passes over that memory.
const PASSES: u32 = 2;
/// How many are hashed at once: each takes a core for some 20 ms.
const AT_ONCE: usize = 2;
/// The shortest password, characters.
pub(crate) const MIN_PASSWORD: usize = 12;
/// The longest.
pub(crate) const MAX_PASSWORD: usize = 256;

/// Words that guesses begin with. With digits and signs at either end they are guessed at once.
const COMMON_WORDS: &[&str] = &[
    "password",
    "passwort",
    "motdepasse",
    "contrasena",
    "contraseña",
    "passwd",
    "admin",
    "administrator",
    "letmein",
    "welcome",
    "willkommen",
    "bienvenue",
    "bienvenido",
    "benvenuto",
    "iloveyou",
    "ichliebedich",
    "jetaime",
    "tequiero",
    "tiamo",
    "sunshine",
    "princess",
    "football",
    "baseball",
    "basketball",
    "superman",
    "batman",
    "starwars",
    "qwerty",
    "qwertyuiop",
    "qwertz",
    "qwertzuiop",
    "azerty",
    "azertyuiop",
    "asdfghjkl",
    "zxcvbnm",
    "trustno",
    "changeme",
    "whatever",
    "computer",
    "internet",
    "summer",
    "winter",
    "spring",
    "autumn",
    "sommer",
    "monkey",
    "dragon",
    "shadow",
    "master",
    "michael",
    "jordan",
    "liverpool",
    "marathon",
    "photofinish",
    "test",
    "testtest",
    "secret",
    "geheim",
    "hallo",
    "hello",
    "abc",
    "abcdef",
    "abcdefg",
    "abcdefgh",
    "correcthorsebatterystaple",
];

/// Hashes and verifies passwords. Cheap to clone; clones share the limit.
#[derive(Clone)]
pub struct Passwords {
    turns: Arc<Semaphore>,
    /// What the password of an unknown address is compared with, so that the answer takes as long.
    nobody: Arc<OnceLock<String>>,
}

impl Default for Passwords {
    fn default() -> Self {
        Self { turns: Arc::new(Semaphore::new(AT_ONCE)), nobody: Arc::default() }
    }
}

/// What is wrong with a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PasswordProblem {
    /// Fewer than [`MIN_PASSWORD`] characters.
    TooShort,
    /// More than [`MAX_PASSWORD`] characters.
    TooLong,
    /// Among those that are guessed first.
    TooCommon,
    /// The address of the account.
    IsAddress,
}

/// Says whether a password is accepted for an address.
pub(crate) fn check_strength(password: &str, email: &str) -> Result<(), PasswordProblem> {
    let length = password.chars().count();
    if length < MIN_PASSWORD {
        return Err(PasswordProblem::TooShort);
    }
    if length > MAX_PASSWORD {
        return Err(PasswordProblem::TooLong);
    }
    let lower = password.to_lowercase();
    if lower.contains(email) || email.split('@').next().is_some_and(|name| strip(&lower) == name) {
        return Err(PasswordProblem::IsAddress);
    }
    if is_common(&lower) { Err(PasswordProblem::TooCommon) } else { Ok(()) }
}

/// Without digits and signs at its ends.
fn strip(password: &str) -> &str {
    password.trim_matches(|character: char| !character.is_alphabetic())
}

/// Whether it is one common word or several, whatever digits and signs are between them.
fn is_made_of_common_words(word: &str) -> bool {
    let letters: String = word.chars().filter(|character| character.is_alphabetic()).collect();
    // Whether what comes before each place is made of them.
    let mut is_made = vec![false; letters.len() + 1];
    is_made[0] = true;
    for at in 0..letters.len() {
        if is_made[at] {
            let here = COMMON_WORDS.iter().filter(|common| letters[at..].starts_with(**common));
            here.for_each(|common| is_made[at + common.len()] = true);
        }
    }
    !letters.is_empty() && is_made[letters.len()]
}

/// Whether it is made of common words, is repeated, or a run, with digits and signs around it.
fn is_common(lower: &str) -> bool {
    let word = strip(lower);
    let is_repeated = |text: &str| {
        let characters: Vec<char> = text.chars().collect();
        (1..=4).any(|unit| {
            characters.len() > unit && characters.windows(unit + 1).all(|part| part[0] == part[unit])
        })
    };
    let is_run = |text: &str| {
        let steps: Vec<i64> = text.chars().map(|c| i64::from(u32::from(c))).collect();
        steps.windows(2).all(|pair| pair[1] - pair[0] == 1)
            || steps.windows(2).all(|pair| pair[0] - pair[1] == 1)
    };
    let digits_only = lower.chars().all(|character| character.is_ascii_digit());
    word.is_empty() && (digits_only || is_repeated(lower))
        || is_made_of_common_words(word)
        || is_repeated(lower)
        || !word.is_empty() && word.len() > 3 && (is_repeated(word) || is_run(word))
}

impl Passwords {
    /// Waits for a turn.
    pub(crate) async fn take_turn(&self) -> Result<Turn, ApiError> {
        let permit = Arc::clone(&self.turns).acquire_owned().await.map_err(ApiError::internal)?;
        Ok(Turn { permit: Arc::new(permit), nobody: Arc::clone(&self.nobody) })
    }

    /// Returns the hash of a password (PHC string format).
    ///
    /// # Errors
    /// 500 when the hash fails, which it does only without memory.
    pub(crate) async fn hash(&self, password: String) -> Result<String, ApiError> {
        self.take_turn().await?.run(move || make_hash(&password)).await
    }
}

/// One of the few turns to hash. Whoever tries a password keeps it until it is recorded what came of that, so that those who
/// wait for a turn are judged by it.
pub(crate) struct Turn {
    permit: Arc<OwnedSemaphorePermit>,
    nobody: Arc<OnceLock<String>>,
}

impl Turn {
    /// Returns whether this is the password of a hash. Takes as long where there is no hash.
    ///
    /// # Errors
    /// 500 when the stored hash cannot be read.
    pub(crate) async fn verify(&self, password: String, hash: Option<String>) -> Result<bool, ApiError> {
        let nobody = Arc::clone(&self.nobody);
        let verified = self.run(move || {
            let is_somebody = hash.is_some();
            let hash = match hash {
                Some(hash) => hash,
                None => match nobody.get() {
                    Some(hash) => hash.clone(),
                    None => {
                        let made = make_hash("nobody's password")?;
                        nobody.get_or_init(|| made).clone()
                    }
                },
            };
            let parsed = PasswordHash::new(&hash).map_err(|error| ApiError::internal(error.to_string()))?;
            Ok(hasher()?.verify_password(password.as_bytes(), &parsed).is_ok() && is_somebody)
        });
        verified.await
    }

    /// Runs a hash on a thread of its own.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let permit = Arc::clone(&self.permit);
        let hash = move || {
            // Until it has ended, also where the client has left meanwhile.
            let _permit = permit;
            work()
        };
        tokio::task::spawn_blocking(hash).await.map_err(ApiError::internal)?
    }
}

fn hasher() -> Result<Argon2<'static>, ApiError> {
    let params = Params::new(MEMORY_KIB, PASSES, 1, None);
    let params = params.map_err(|error| ApiError::internal(error.to_string()))?;
    Ok(Argon2::new(Algorithm::Argon2id, Version::V0x13, params))
}

fn make_hash(password: &str) -> Result<String, ApiError> {
    let salt: [u8; 16] = rand::random();
    let hashed = hasher()?.hash_password_with_salt(password.as_bytes(), &salt);
    Ok(hashed.map_err(|error| ApiError::internal(error.to_string()))?.to_string())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_hash_keeps_its_turn_when_the_client_leaves() {
        let passwords = Passwords::default();
        for _ in 0..AT_ONCE {
            let left = tokio::time::timeout(Duration::ZERO, passwords.hash("four wet dogs run".into())).await;
            assert!(left.is_err(), "it takes longer than that");
        }
        assert_eq!(passwords.turns.available_permits(), 0);
        let _all = passwords.turns.acquire_many(AT_ONCE as u32).await.unwrap();
    }

    #[tokio::test]
    async fn a_turn_lasts_until_what_came_of_it_is_recorded() {
        let passwords = Passwords::default();
        let turn = passwords.take_turn().await.unwrap();
        assert!(!turn.verify("four wet dogs run".into(), None).await.unwrap());
        assert_eq!(passwords.turns.available_permits(), AT_ONCE - 1);
        drop(turn);
        assert_eq!(passwords.turns.available_permits(), AT_ONCE);
    }

    #[test]
    fn passwords_that_are_guessed_first_are_refused() {
        let check = |password: &str| check_strength(password, "anna@race.example");
        assert_eq!(check("elf chars. "), Err(PasswordProblem::TooShort));
        assert_eq!(check(&"langes Wort ".repeat(22)), Err(PasswordProblem::TooLong));
        for common in [
            "Password1234",
            "123456789012",
            "987654321098",
            "aaaaaaaaaaaaa",
            "abcabcabcabc",
            "Qwertyuiop12!",
            "administrator",
            "iloveyou1234",
            "abcdefghijklm",
            "1234567890qwerty",
            "!!!!!!!!!!!!",
            "Marathon2026!",
            "summerwinter",
            "Welcome-2-Photofinish!",
        ] {
            assert_eq!(check(common), Err(PasswordProblem::TooCommon), "{common}");
        }
        assert_eq!(check("anna@race.example"), Err(PasswordProblem::IsAddress));
        assert_eq!(check("Anna12345678"), Err(PasswordProblem::IsAddress));
        for good in ["four wet dogs run", "Lauf-2026-am-See", "läuferläufe7x", "f8Kq2mZr0pLx"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
    }

    #[tokio::test]
    async fn a_password_fits_its_hash_alone() {
        let passwords = Passwords::default();
        let hash = passwords.hash("four wet dogs run".to_owned()).await.unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        let turn = passwords.take_turn().await.unwrap();
        let verify = async |password: &str, hash| turn.verify(password.to_owned(), hash).await.unwrap();
        assert!(verify("four wet dogs run", Some(hash.clone())).await);
        assert!(!verify("four wet dogs ran", Some(hash.clone())).await);
        assert!(!verify("nobody's password", None).await);
        assert_ne!(passwords.hash("four wet dogs run".to_owned()).await.unwrap(), hash);
    }
}
