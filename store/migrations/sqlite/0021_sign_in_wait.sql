-- Waits after wrong passwords, for addresses with an account and without one alike, so that a wait does not tell which have
-- one. The columns `failures` and `blocked_until` of `account` are not used from here on.
create table sign_in_wait (
    -- SHA-256 of the address in lower case.
    address blob not null constraint sign_in_wait_key primary key,
    -- Wrong passwords since the last right one, and until when no other is tried.
    failures integer not null,
    blocked_until integer not null,
    last_failure_at integer not null
) without rowid;

create index sign_in_wait_by_last_failure on sign_in_wait (last_failure_at);
