//! Who calls, and what the key permits. The types of this module are made nowhere else: a handler that takes a
//! [`Manager`] cannot be reached without the scope.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use photofinish_store::model::album::Tenant;
use photofinish_store::model::ids::KeyId;
use photofinish_store::model::key::{Key, KeyMode, Scope};
use photofinish_store::traits::Keys;
use time::{Duration, OffsetDateTime};
use warp::http::HeaderMap;

use crate::context::{Context, Environment};
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::key::KeyText;

/// The header that carries the key.
pub(crate) const KEY_HEADER: &str = "x-api-key";

/// A known caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// The key: the `createdBy` of what it makes.
    pub(crate) key: KeyId,
    /// Whose objects it sees.
    pub(crate) tenant: Tenant,
}

/// A caller who holds a scope.
pub(crate) trait ScopedCaller: Deref<Target = Caller> + Send + Sized + 'static {
    /// The scope that it takes; `None` when any key will do.
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
    /// May query faces and bibs.
    Searcher: Some(Scope::SearchRead);
    /// May upload photos and see what becomes of them.
    Uploader: Some(Scope::PhotoUpload);
    /// May make, change and delete albums.
    AlbumManager: Some(Scope::AlbumManage);
    /// Holds a valid key of any scope.
    AnyScope: None;
}

/// Judges keys.
pub(crate) struct Authenticator {
    keys: Arc<dyn Keys>,
    environment: Environment,
    last_touched: Mutex<HashMap<KeyId, OffsetDateTime>>,
}

/// `last_used_at` is to the minute, so one write a minute and key is enough.
const TOUCH_INTERVAL: Duration = Duration::MINUTE;

impl Authenticator {
    /// A gate before the store's keys.
    pub(crate) fn new(ctx: &Context) -> Self {
        let environment = ctx.settings.environment;
        Self { keys: ctx.store.keys.clone(), environment, last_touched: Mutex::default() }
    }

    /// The caller, if the key is valid and permits what `C` stands for.
    pub(crate) async fn authenticate<C: ScopedCaller>(&self, headers: &HeaderMap) -> Result<C, ApiError> {
        let now = OffsetDateTime::now_utc();
        let key = self.verify_key(headers, now).await?;
        self.touch(&key, now);
        if C::SCOPE.is_some_and(|scope| !key.scopes.contains(&scope)) {
            return Err(ApiError::new(ErrorKind::Forbidden).with_code("INSUFFICIENT_SCOPE"));
        }
        Ok(C::from_caller(Caller { key: key.id, tenant: key.tenant }))
    }

    async fn verify_key(&self, headers: &HeaderMap, now: OffsetDateTime) -> Result<Key, ApiError> {
        let sent = headers.get(KEY_HEADER).ok_or_else(|| unauthorized("KEY_MISSING"))?;
        let sent = sent.to_str().map_err(|_| unauthorized("KEY_MALFORMED"))?;
        let text = KeyText::parse(sent).map_err(|_| unauthorized("KEY_MALFORMED"))?;
        let taken = match self.environment {
            Environment::Production => text.mode() == KeyMode::Live,
            Environment::Sandbox => text.mode() == KeyMode::Test,
            Environment::Local => true,
        };
        if !taken {
            return Err(unauthorized("KEY_OF_ANOTHER_ENVIRONMENT"));
        }
        let key = self.keys.find(&text.digest()).await?.ok_or_else(|| unauthorized("KEY_UNKNOWN"))?;
        if key.revoked_at.is_some() {
            return Err(unauthorized("KEY_REVOKED"));
        }
        if key.expires_at.is_some_and(|expiry| expiry <= now) {
            return Err(unauthorized("KEY_EXPIRED"));
        }
        Ok(key)
    }

    /// Notes the use beside the request, which does not wait. The task ends with its one write.
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
                tracing::warn!(key.id = %id, %error, "the last use of a key was not noted");
            }
        });
    }
}

fn unauthorized(code: &'static str) -> ApiError {
    ApiError::new(ErrorKind::Unauthorized).with_code(code)
}
