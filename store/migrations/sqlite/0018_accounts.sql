-- People who use the console: their accounts, the links that let them in first, and their sessions.

create table account (
    id blob not null constraint account_key primary key,
    organization blob not null constraint account_organization references organization (id),
    -- In lower case.
    email text not null constraint account_email_unique unique,
    name text not null,
    role text not null constraint account_role check (role in ('owner', 'organizer', 'viewer')),
    -- Whether it sees the health of the whole service and grants credits.
    is_operator integer not null,
    -- The hash of the password with its parameters (PHC string format); null until one is chosen.
    password text,
    -- The language of the console; null for that of the browser.
    language text,
    created_at integer not null,
    last_seen_at integer,
    disabled_at integer,
    -- Wrong passwords since the last right one, and until when no other is tried.
    failures integer not null default 0,
    blocked_until integer not null default 0
) without rowid;

create index account_by_organization on account (organization, id);

-- Who the account is at a provider of identities.
create table account_identity (
    issuer text not null,
    subject text not null,
    account blob not null constraint account_identity_account references account (id) on delete cascade,
    constraint account_identity_key primary key (issuer, subject)
) without rowid;

create index account_identity_by_account on account_identity (account);

-- Links that can be used once, by the SHA-256 of their token. A new one ends the one before.
create table account_link (
    account blob not null constraint account_link_account references account (id) on delete cascade,
    purpose text not null constraint account_link_purpose check (purpose in ('welcome', 'reset', 'enter')),
    digest blob not null constraint account_link_digest_unique unique,
    expires_at integer not null,
    constraint account_link_key primary key (account, purpose)
) without rowid;

create table account_session (
    id blob not null constraint account_session_key primary key,
    -- SHA-256 of the cookie.
    digest blob not null constraint account_session_digest_unique unique,
    account blob not null constraint account_session_account references account (id) on delete cascade,
    -- The browser, for people.
    device text not null,
    created_at integer not null,
    last_seen_at integer not null,
    expires_at integer not null
) without rowid;

create index account_session_by_account on account_session (account, id);

-- Wrong passwords by where they came from: HMAC-SHA256 of the address with a secret of the day.
create table sign_in_attempt (
    source blob not null,
    hour integer not null,
    failures integer not null,
    constraint sign_in_attempt_key primary key (source, hour)
) without rowid;
