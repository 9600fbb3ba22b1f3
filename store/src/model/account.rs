//! Accounts of people: who may use the console of an organization, and their sessions.

use time::OffsetDateTime;

use crate::model::ids::{AccountId, OrganizationId, SessionId};

/// What an account may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Look and search.
    Viewer,
    /// Work with albums and photos too.
    Organizer,
    /// Keys, accounts, credits and the erasure of people too.
    Owner,
}

impl Role {
    /// Every role, the one that may do most first.
    pub const ALL: [Self; 3] = [Self::Owner, Self::Organizer, Self::Viewer];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Organizer => "organizer",
            Self::Viewer => "viewer",
        }
    }
}

/// What a link is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkPurpose {
    /// The first password of a new account.
    Welcome,
    /// Another password.
    Reset,
    /// A session without a password.
    Enter,
}

impl LinkPurpose {
    /// Every purpose.
    pub const ALL: [Self; 3] = [Self::Welcome, Self::Reset, Self::Enter];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Welcome => "welcome",
            Self::Reset => "reset",
            Self::Enter => "enter",
        }
    }
}

/// SHA-256 of a token of 256 random bits: of a link, or of the cookie of a session.
pub type TokenDigest = [u8; 32];

/// An account.
#[derive(Clone, Debug, PartialEq)]
pub struct Account {
    /// Its id: the `createdBy` of what is made with it.
    pub id: AccountId,
    /// The organization whose objects it sees.
    pub organization: OrganizationId,
    /// The name of the organization.
    pub organization_name: String,
    /// Its address, in lower case.
    pub email: String,
    /// The name of the person; may be empty.
    pub name: String,
    /// What it may do.
    pub role: Role,
    /// Whether it sees the health of the whole service and grants credits.
    pub is_operator: bool,
    /// The language of the console; `None` for that of the browser.
    pub language: Option<String>,
    /// Whether a password was chosen.
    pub has_password: bool,
    /// When it was made.
    pub created_at: OffsetDateTime,
    /// When it was last used, to the minute.
    pub last_seen_at: Option<OffsetDateTime>,
    /// Since when it cannot be used.
    pub disabled_at: Option<OffsetDateTime>,
}

/// An account to make.
#[derive(Clone, Debug)]
pub struct NewAccount {
    /// The organization.
    pub organization: OrganizationId,
    /// The address, in lower case.
    pub email: String,
    /// What it may do.
    pub role: Role,
    /// Whether it sees the health of the whole service.
    pub is_operator: bool,
}

/// A link to make.
#[derive(Clone, Copy, Debug)]
pub struct NewLink {
    /// What for.
    pub purpose: LinkPurpose,
    /// The digest of its token.
    pub digest: TokenDigest,
    /// Until when it can be used.
    pub expires_at: OffsetDateTime,
}

/// A link that has not been used.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// What for.
    pub purpose: LinkPurpose,
    /// Until when it can be used.
    pub expires_at: OffsetDateTime,
    /// Whose it is.
    pub account: Account,
}

/// A session to begin.
#[derive(Clone, Debug)]
pub struct NewSession {
    /// The digest of its cookie.
    pub digest: TokenDigest,
    /// The browser, for people.
    pub device: String,
    /// When it ends at the latest.
    pub expires_at: OffsetDateTime,
}

/// A session.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// The browser, for people.
    pub device: String,
    /// When it began.
    pub created_at: OffsetDateTime,
    /// When it was last used, to the minute.
    pub last_seen_at: OffsetDateTime,
    /// When it ends at the latest.
    pub expires_at: OffsetDateTime,
}

/// What a password is compared with.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Whose.
    pub account: Account,
    /// The hash of the password (PHC string format).
    pub password: Option<String>,
}

/// What is to change of an account; `None` for what is not.
#[derive(Clone, Debug, Default)]
pub struct AccountChange {
    /// The name of the person.
    pub name: Option<String>,
    /// The language of the console; `Some(None)` for that of the browser.
    pub language: Option<Option<String>>,
    /// What it may do.
    pub role: Option<Role>,
    /// Whether it cannot be used.
    pub disabled: Option<bool>,
}

/// What using a link changes.
#[derive(Clone, Debug)]
pub struct LinkUse {
    /// The digest of the link's token.
    pub digest: TokenDigest,
    /// The hash of the new password; `None` to keep the one there is.
    pub password: Option<String>,
    /// The name of the person; `None` to keep the one there is.
    pub name: Option<String>,
    /// The session that begins.
    pub session: NewSession,
}
