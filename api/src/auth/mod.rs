//! Authenticates callers, by API key or by the session of the console, and checks what they may do.
//!
//! Only this module creates the caller types, so a handler that takes an [`AlbumManager`] cannot be reached without the
//! scope `album:manage`, or a role that has it.

mod callers;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use photofinish_store::Store;
use photofinish_store::model::account::{Role, Session};
use photofinish_store::model::album::Tenant;
use photofinish_store::model::credit::RequestOrigin;
use photofinish_store::model::ids::KeyId;
use photofinish_store::model::key::{Key, KeyDigest, KeyMode, Scope};
use photofinish_store::model::rate::{RateClass, RateLimits};
use photofinish_store::traits::{Accounts, Keys};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;
use warp::http::HeaderMap;

pub(crate) use self::callers::{
    AlbumManager, AnyScope, Member, Operator, Owner, PeopleEraser, ScopedCaller, Searcher, Uploader, Watcher,
};
use crate::context::{Context, Environment};
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::key::KeyText;
use crate::session::{self, SignedIn};

/// The code of a 403 for an account whose role does not permit what it asks.
pub(crate) const INSUFFICIENT_ROLE: &str = "INSUFFICIENT_ROLE";

/// The header with the API key.
pub(crate) const KEY_HEADER: &str = "x-api-key";

/// The header with the mode in which an account works, where the environment has both.
const MODE_HEADER: &str = "x-photofinish-mode";

/// How callers show who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// By an API key.
    Key,
    /// By the session of an account.
    Session,
}

/// In place of a key, for visitors of galleries.
const VISITOR: KeyId = KeyId(Uuid::nil());

/// What a caller has shown.
#[derive(Clone, Copy)]
enum Credential {
    Key(KeyDigest),
    Session(SignedIn),
    /// The link of a gallery, which was looked at before.
    Visitor,
}

/// Scopes, as a set.
#[derive(Clone, Copy)]
struct Scopes {
    search: bool,
    upload: bool,
    manage: bool,
}

impl Scopes {
    fn of_key(key: &Key) -> Self {
        let has = |scope| key.scopes.contains(&scope);
        Self {
            search: has(Scope::SearchRead),
            upload: has(Scope::PhotoUpload),
            manage: has(Scope::AlbumManage),
        }
    }

    fn of_role(role: Role) -> Self {
        let works = role >= Role::Organizer;
        Self { search: true, upload: works, manage: works }
    }

    fn contain(self, scope: Scope) -> bool {
        match scope {
            Scope::SearchRead => self.search,
            Scope::PhotoUpload => self.upload,
            Scope::AlbumManage => self.manage,
        }
    }
}

/// An authenticated caller.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    /// The key, or the account as if it were one; the `createdBy` of albums that it creates.
    pub(crate) key: KeyId,
    /// The tenant whose objects the caller can access.
    pub(crate) tenant: Tenant,
    /// Whether it may do what the scope `album:manage` permits.
    pub(crate) can_manage: bool,
    scopes: Scopes,
    /// The key's own limits.
    limits: RateLimits,
    credential: Credential,
}

impl Caller {
    /// Returns the limit of the key, units a minute; `None` if there is none. `service` has the limits of keys without their
    /// own.
    pub(crate) fn rate_limit(&self, class: RateClass, service: &RateLimits) -> Option<u32> {
        self.limits.get(class).or(service.get(class)).filter(|limit| *limit > 0)
    }

    /// Checks that the key has been neither revoked nor expired since, and that the session has not ended: for responses that
    /// go on for a while. Returns whether the caller may still do what the scope `album:manage` permits.
    ///
    /// # Errors
    /// 401 as for a new request; 503 if the database cannot be asked.
    pub(crate) async fn check_credential(&self, store: &Store) -> Result<bool, ApiError> {
        let now = OffsetDateTime::now_utc();
        let scopes = match &self.credential {
            Credential::Key(digest) => Scopes::of_key(&find_valid_key(&*store.keys, digest, now).await?),
            Credential::Visitor => self.scopes,
            Credential::Session(signed_in) => {
                let (_, account) = session::find(&*store.accounts, &signed_in.digest, now).await?;
                Scopes::of_role(account.role)
            }
        };
        Ok(scopes.manage)
    }

    /// A visitor of a gallery, who may do to its album what the gallery has decided before.
    pub(crate) fn of_gallery(tenant: Tenant) -> Self {
        let scopes = Scopes { search: true, upload: true, manage: true };
        Self {
            key: VISITOR,
            tenant,
            can_manage: false,
            scopes,
            limits: RateLimits::default(),
            credential: Credential::Visitor,
        }
    }

    /// Who makes its requests.
    pub(crate) fn origin(&self) -> RequestOrigin {
        match &self.credential {
            Credential::Key(_) | Credential::Session(_) => RequestOrigin::Partner,
            Credential::Visitor => RequestOrigin::Gallery,
        }
    }

    /// Who is signed in; `None` for a key.
    pub(crate) fn signed_in(&self) -> Option<&SignedIn> {
        match &self.credential {
            Credential::Key(_) | Credential::Visitor => None,
            Credential::Session(signed_in) => Some(signed_in),
        }
    }

    /// Checks the scope of a key, or that the role of an account has it.
    fn require_scope(&self, scope: Option<Scope>) -> Result<(), ApiError> {
        if scope.is_none_or(|scope| self.scopes.contain(scope)) {
            return Ok(());
        }
        let code = match self.credential {
            Credential::Key(_) | Credential::Visitor => "INSUFFICIENT_SCOPE",
            Credential::Session(_) => INSUFFICIENT_ROLE,
        };
        Err(ApiError::new(ErrorKind::Forbidden).with_code(code))
    }
}

/// Authenticates requests.
pub(crate) struct Authenticator {
    keys: Arc<dyn Keys>,
    accounts: Arc<dyn Accounts>,
    environment: Environment,
    is_https: bool,
    last_touched: Mutex<HashMap<KeyId, OffsetDateTime>>,
}

/// `last_used_at` has a resolution of a minute, so one write per minute and key is enough.
const TOUCH_INTERVAL: Duration = Duration::MINUTE;

impl Authenticator {
    pub(crate) fn new(ctx: &Context) -> Self {
        Self {
            keys: ctx.store.keys.clone(),
            accounts: ctx.store.accounts.clone(),
            environment: ctx.settings.environment,
            is_https: ctx.settings.console.is_https(),
            last_touched: Mutex::default(),
        }
    }

    /// Returns the caller who has shown at the gate that it may do what `C` says.
    ///
    /// # Errors
    /// 401 without a valid key or session, with the reason in `data.code`; 403 if it may not.
    pub(crate) async fn authenticate<C: ScopedCaller>(
        &self,
        gate: Gate,
        headers: &HeaderMap,
    ) -> Result<C, ApiError> {
        let now = OffsetDateTime::now_utc();
        let caller = match gate {
            Gate::Key => self.find_by_key(headers, now).await?,
            Gate::Session => self.find_by_session(headers, now).await?,
        };
        C::admit(caller)
    }

    async fn find_by_session(&self, headers: &HeaderMap, now: OffsetDateTime) -> Result<Caller, ApiError> {
        let digest = session::read_digest(headers, self.is_https)?;
        let (session, account) = session::find(&*self.accounts, &digest, now).await?;
        self.touch_session(&session, now);
        let scopes = Scopes::of_role(account.role);
        let signed_in = SignedIn {
            account: account.id,
            session: session.id,
            role: account.role,
            is_operator: account.is_operator,
            digest,
        };
        Ok(Caller {
            key: KeyId(account.id.0),
            tenant: Tenant { organization: account.organization, mode: self.read_mode(headers)? },
            can_manage: scopes.manage,
            scopes,
            limits: RateLimits::default(),
            credential: Credential::Session(signed_in),
        })
    }

    /// Returns the mode that an account asks for, if the environment has it; test where it has both and none is asked for.
    fn read_mode(&self, headers: &HeaderMap) -> Result<KeyMode, ApiError> {
        let modes = self.environment.modes();
        let Some(asked) = headers.get(MODE_HEADER) else { return Ok(modes[0]) };
        let found = modes.iter().copied().find(|mode| asked == mode.as_str());
        found.ok_or_else(|| ApiError::new(ErrorKind::Forbidden).with_code("MODE_OF_ANOTHER_ENVIRONMENT"))
    }

    fn touch_session(&self, session: &Session, now: OffsetDateTime) {
        if now - session.last_seen_at < TOUCH_INTERVAL {
            return;
        }
        let (accounts, id) = (self.accounts.clone(), session.id);
        tokio::spawn(async move {
            if let Err(error) = accounts.touch_session(id, now).await {
                tracing::warn!(session.id = %id, %error, "failed to record the use of a session");
            }
        });
    }

    async fn find_by_key(&self, headers: &HeaderMap, now: OffsetDateTime) -> Result<Caller, ApiError> {
        let digest = self.read_digest(headers)?;
        let key = find_valid_key(&*self.keys, &digest, now).await?;
        self.touch(&key, now);
        let scopes = Scopes::of_key(&key);
        let Key { id, tenant, limits, .. } = key;
        let credential = Credential::Key(digest);
        Ok(Caller { key: id, tenant, can_manage: scopes.manage, scopes, limits, credential })
    }

    /// Returns the digest of the key in the headers, if this environment accepts keys of its mode.
    fn read_digest(&self, headers: &HeaderMap) -> Result<KeyDigest, ApiError> {
        let sent = headers.get(KEY_HEADER).ok_or_else(|| unauthorized("KEY_MISSING"))?;
        let sent = sent.to_str().map_err(|_| unauthorized("KEY_MALFORMED"))?;
        let text = KeyText::parse(sent).map_err(|_| unauthorized("KEY_MALFORMED"))?;
        if !self.environment.modes().contains(&text.mode()) {
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
        keys.revoke(key.id).await.unwrap();
        assert_eq!(check(before).await, Err(Some(json!({ "code": "KEY_REVOKED" }))));
    }
}
