-- Accounts of people: `migrations/sqlite` says what the columns mean.

create table account (
    id uuid not null constraint account_key primary key,
    organization uuid not null constraint account_organization references organization (id),
    email text not null constraint account_email_unique unique,
    name text not null,
    role text not null constraint account_role check (role in ('owner', 'organizer', 'viewer')),
    is_operator bigint not null,
    password text,
    language text,
    created_at bigint not null,
    last_seen_at bigint,
    disabled_at bigint,
    failures bigint not null default 0,
    blocked_until bigint not null default 0
);

create index account_by_organization on account (organization, id);

create table account_identity (
    issuer text not null,
    subject text not null,
    account uuid not null constraint account_identity_account references account (id) on delete cascade,
    constraint account_identity_key primary key (issuer, subject)
);

create index account_identity_by_account on account_identity (account);

create table account_link (
    account uuid not null constraint account_link_account references account (id) on delete cascade,
    purpose text not null constraint account_link_purpose check (purpose in ('welcome', 'reset', 'enter')),
    digest bytea not null constraint account_link_digest_unique unique,
    expires_at bigint not null,
    constraint account_link_key primary key (account, purpose)
);

create table account_session (
    id uuid not null constraint account_session_key primary key,
    digest bytea not null constraint account_session_digest_unique unique,
    account uuid not null constraint account_session_account references account (id) on delete cascade,
    device text not null,
    created_at bigint not null,
    last_seen_at bigint not null,
    expires_at bigint not null
);

create index account_session_by_account on account_session (account, id);

create table sign_in_attempt (
    source bytea not null,
    hour bigint not null,
    failures bigint not null,
    constraint sign_in_attempt_key primary key (source, hour)
);
