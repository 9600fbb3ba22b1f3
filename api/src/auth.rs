//! Authenticates callers by API key and checks the scope of the key.
//!
//! Only this module creates the caller types, so a handler that takes an [`AlbumManager`] cannot be reached without the
//! scope `album:manage`.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use photofinish_store::model::album::Tenant;
use photofinish_store::model::ids::KeyId;
use photofinish_store::model::key::{Key, KeyDigest, KeyMode, Scope};
use photofinish_store::model::rate::{RateClass, RateLimits};
use photofinish_store::traits::Keys;
use time::{Duration, OffsetDateTime};
use warp::http::HeaderMap;

use crate::context::{Context, Environment};
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::key::KeyText;

/// The header with the API key.
pub(crate) const KEY_HEADER: &str = "x-api-key";

/// An authenticated caller.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    /// The key; the `createdBy` of albums that it creates.
    pub(crate) key: KeyId,
    /// The tenant whose objects the caller can access.
    pub(crate) tenant: Tenant,
    /// Whether the key has the scope `album:manage`.
    pub(crate) can_manage: bool,
    /// The key's own limits.
    limits: RateLimits,
    digest: KeyDigest,
}

impl Caller {
    /// Returns the limit of the key, units a minute; `None` if there is none. `service` has the limits of keys without their
    /// own.
    pub(crate) fn rate_limit(&self, class: RateClass, service: &RateLimits) -> Option<u32> {
        self.limits.get(class).or(service.get(class)).filter(|limit| *limit > 0)
    }

    /// Checks that the key has been neither revoked nor expired since: for responses that go on for a while.
    ///
    /// # Errors
    /// 401 as for a new request; 503 if the database cannot be asked.
    pub(crate) async fn check_key(&self, keys: &dyn Keys) -> Result<(), ApiError> {
        find_valid_key(keys, &self.digest, OffsetDateTime::now_utc()).await.map(drop)
    }
}

/// A caller whose key has a scope.
pub(crate) trait ScopedCaller: Deref<Target = Caller> + Send + Sized + 'static {
    /// The required scope; `None` if any valid key is enough.
    const SCOPE: Option<Scope>;

    #[doc(hidden)]
    fn from_caller(caller: Caller) -> Self;
}

macro_rules! scoped_callers {
    ($(#[$doc:meta] $name:ident: $scope:expr;)+) => {$(
        #[$doc]
        pub(crate) struct $name(Caller);

        impl ScopedCaller for $name {
            const SCOPE: Option<Scope> = $scope;
            fn from_caller(caller: Caller) -> Self {
                Self(caller)
            }
        }

        impl Deref for $name {
            type Target = Caller;
            fn deref(&self) -> &Caller {
                &self.0
            }
        }
    )+};
}

scoped_callers! {
    /// May search faces and bibs.
    Searcher: Some(Scope::SearchRead);
    /// May upload, list and delete photos and see the progress of albums.
    Uploader: Some(Scope::PhotoUpload);
    /// May create, update, delete and reprocess albums.
    AlbumManager: Some(Scope::AlbumManage);
    /// Has a valid key of any scope.
    AnyScope: None;
}

/// Authenticates requests.
pub(crate) struct Authenticator {
    keys: Arc<dyn Keys>,
    environment: Environment,
    last_touched: Mutex<HashMap<KeyId, OffsetDateTime>>,
}

/// `last_used_at` has a resolution of a minute, so one write per minute and key is enough.
const TOUCH_INTERVAL: Duration = Duration::MINUTE;

impl Authenticator {
    pub(crate) fn new(ctx: &Context) -> Self {
        let environment = ctx.settings.environment;
        Self { keys: ctx.store.keys.clone(), environment, last_touched: Mutex::default() }
    }

    /// Returns the caller if the key is valid and has the scope of `C`.
    ///
    /// # Errors
    /// 401 without a valid key, with the reason in `data.code`; 403 `INSUFFICIENT_SCOPE` without the scope.
    pub(crate) async fn authenticate<C: ScopedCaller>(&self, headers: &HeaderMap) -> Result<C, ApiError> {
        let now = OffsetDateTime::now_utc();
        let digest = self.read_digest(headers)?;
        let key = find_valid_key(&*self.keys, &digest, now).await?;
        self.touch(&key, now);
        if C::SCOPE.is_some_and(|scope| !key.scopes.contains(&scope)) {
            return Err(ApiError::new(ErrorKind::Forbidden).with_code("INSUFFICIENT_SCOPE"));
        }
        let can_manage = key.scopes.contains(&Scope::AlbumManage);
        let Key { id, tenant, limits, .. } = key;
        Ok(C::from_caller(Caller { key: id, tenant, can_manage, limits, digest }))
    }

    /// Returns the digest of the key in the headers, if this environment accepts keys of its mode.
    fn read_digest(&self, headers: &HeaderMap) -> Result<KeyDigest, ApiError> {
        let sent = headers.get(KEY_HEADER).ok_or_else(|| unauthorized("KEY_MISSING"))?;
        let sent = sent.to_str().map_err(|_| unauthorized("KEY_MALFORMED"))?;
        let text = KeyText::parse(sent).map_err(|_| unauthorized("KEY_MALFORMED"))?;
        let is_accepted = match self.environment {
            Environment::Production => text.mode() == KeyMode::Live,
            Environment::Sandbox => text.mode() == KeyMode::Test,
            Environment::Local => true,
        };
        if !is_accepted {
            return Err(unauthorized("KEY_OF_ANOTHER_ENVIRONMENT"));
        }
        Ok(text.digest())
    }

    /// Records the use of a key in a task of its own, so that the request does not wait for the write.
    fn touch(&self, key: &Key, now: OffsetDateTime) {
        let mut touched = self.last_touched.lock().unwrap_or_else(PoisonError::into_inner);
        let last = touched.get(&key.id).copied().max(key.last_used_at);
        if last.is_some_and(|last| now - last < TOUCH_INTERVAL) {
            return;
        }
        touched.insert(key.id, now);
        let (keys, id) = (self.keys.clone(), key.id);
        tokio::spawn(async move {
            if let Err(error) = keys.touch(id, now).await {
                tracing::warn!(key.id = %id, %error, "failed to record the last use of a key");
            }
        });
    }
}

async fn find_valid_key(keys: &dyn Keys, digest: &KeyDigest, now: OffsetDateTime) -> Result<Key, ApiError> {
    let key = keys.find(digest).await?.ok_or_else(|| unauthorized("KEY_UNKNOWN"))?;
    if key.revoked_at.is_some() {
        return Err(unauthorized("KEY_REVOKED"));
    }
    if key.expires_at.is_some_and(|expiry| expiry <= now) {
        return Err(unauthorized("KEY_EXPIRED"));
    }
    Ok(key)
}

fn unauthorized(code: &'static str) -> ApiError {
    ApiError::new(ErrorKind::Unauthorized).with_code(code)
}

#[cfg(test)]
mod tests {
    use photofinish_store::conformance::test_settings;
    use photofinish_store::model::key::NewKey;
    use photofinish_store::open_keys;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_key_becomes_invalid_at_its_expiry_and_when_it_is_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let settings = test_settings(folder.path());
        let keys = open_keys(&settings.database_url, &settings.server_limits).await.unwrap();
        let expiry = OffsetDateTime::from_unix_timestamp(1_900_000_000).unwrap();
        let new = NewKey {
            organization: keys.get_or_create_organization("Lake Timing").await.unwrap(),
            mode: KeyMode::Live,
            label: "gate 3".to_owned(),
            hint: "svc_live_x9".to_owned(),
            scopes: Scope::ALL.to_vec(),
            limits: RateLimits::default(),
            expires_at: Some(expiry),
            digest: [7; 32],
        };
        let key = keys.create(new).await.unwrap();
        let check = async |now| match find_valid_key(&*keys, &[7; 32], now).await {
            Ok(found) => Ok(found.id),
            Err(error) => Err(error.data().cloned()),
        };
        let before = expiry - Duration::SECOND;
        assert_eq!(check(before).await, Ok(key.id));
        assert_eq!(check(expiry).await, Err(Some(json!({ "code": "KEY_EXPIRED" }))));
        let limits = RateLimits::default();
        let caller = Caller { key: key.id, tenant: key.tenant, can_manage: true, limits, digest: [7; 32] };
        caller.check_key(&*keys).await.unwrap();
        keys.revoke(key.id).await.unwrap();
        assert_eq!(check(before).await, Err(Some(json!({ "code": "KEY_REVOKED" }))));
        assert_eq!(caller.check_key(&*keys).await.unwrap_err().kind(), ErrorKind::Unauthorized);
    }
}
