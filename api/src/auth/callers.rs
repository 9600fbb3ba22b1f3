//! The types of callers: each says what its caller may do. Only [`super::Authenticator`] makes them.

use std::ops::Deref;

use photofinish_store::model::account::Role;
use photofinish_store::model::key::Scope;

use super::{Caller, INSUFFICIENT_ROLE};
use crate::errors::ApiError;
use crate::errors::table::ErrorKind;
use crate::session::SignedIn;

/// A caller who may do something.
pub(crate) trait ScopedCaller: Deref<Target = Caller> + Send + Sized + 'static {
    /// The required scope; `None` if any valid key is enough.
    const SCOPE: Option<Scope>;

    /// Checks that the caller may.
    ///
    /// # Errors
    /// 403 `INSUFFICIENT_SCOPE` for a key, `INSUFFICIENT_ROLE` for an account.
    fn admit(caller: Caller) -> Result<Self, ApiError>;
}

macro_rules! scoped_callers {
    ($(#[$doc:meta] $name:ident: $scope:expr;)+) => {$(
        #[$doc]
        pub(crate) struct $name(Caller);

        impl ScopedCaller for $name {
            const SCOPE: Option<Scope> = $scope;
            fn admit(caller: Caller) -> Result<Self, ApiError> {
                caller.require_scope(Self::SCOPE)?;
                Ok(Self(caller))
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
    /// Has a valid key of any scope, or is signed in.
    AnyScope: None;
}

macro_rules! members {
    ($(#[$doc:meta] $name:ident: $may:expr;)+) => {$(
        #[$doc]
        pub(crate) struct $name {
            caller: Caller,
            /// Who is signed in.
            pub(crate) signed_in: SignedIn,
        }

        impl ScopedCaller for $name {
            const SCOPE: Option<Scope> = None;
            fn admit(caller: Caller) -> Result<Self, ApiError> {
                let may: fn(&SignedIn) -> bool = $may;
                match caller.signed_in().copied() {
                    Some(signed_in) if may(&signed_in) => Ok(Self { caller, signed_in }),
                    _ => Err(ApiError::new(ErrorKind::Forbidden).with_code(INSUFFICIENT_ROLE)),
                }
            }
        }

        impl Deref for $name {
            type Target = Caller;
            fn deref(&self) -> &Caller {
                &self.caller
            }
        }
    )+};
}

members! {
    /// Is signed in.
    Member: |_| true;
    /// Is signed in as an owner of the organization.
    Owner: |signed_in| signed_in.role == Role::Owner;
    /// Is signed in as an operator of the service.
    Operator: |signed_in| signed_in.is_operator;
}

/// May see how work goes on: a key that uploads, or anybody who is signed in.
pub(crate) struct Watcher(Caller);

impl ScopedCaller for Watcher {
    const SCOPE: Option<Scope> = Some(Scope::PhotoUpload);
    fn admit(caller: Caller) -> Result<Self, ApiError> {
        if caller.signed_in().is_none() {
            caller.require_scope(Self::SCOPE)?;
        }
        Ok(Self(caller))
    }
}

impl Deref for Watcher {
    type Target = Caller;
    fn deref(&self) -> &Caller {
        &self.0
    }
}

/// May erase people: a key that manages albums, or an owner who is signed in.
pub(crate) struct PeopleEraser(Caller);

impl ScopedCaller for PeopleEraser {
    const SCOPE: Option<Scope> = Some(Scope::AlbumManage);
    fn admit(caller: Caller) -> Result<Self, ApiError> {
        caller.require_scope(Self::SCOPE)?;
        if caller.signed_in().is_some_and(|signed_in| signed_in.role != Role::Owner) {
            return Err(ApiError::new(ErrorKind::Forbidden).with_code(INSUFFICIENT_ROLE));
        }
        Ok(Self(caller))
    }
}

impl Deref for PeopleEraser {
    type Target = Caller;
    fn deref(&self) -> &Caller {
        &self.0
    }
}
