-- Credits: what organizations may spend and have spent, what they used, and how many requests their keys have made.
--
-- Amounts are thousandths of a credit. A photo passes hold, charge and release: confirming it holds its price, the
-- transaction that makes it ready turns the hold into spending, and a photo that fails or is deleted releases it.

-- What may be spent: the sum of the grants of a tenant. A negative one corrects.
create table credit_grant (
    id blob not null constraint credit_grant_key primary key,
    organization blob not null constraint credit_grant_organization references organization (id),
    mode text not null constraint credit_grant_mode check (mode in ('test', 'live')),
    amount integer not null,
    note text not null,
    -- Who granted it, for people.
    granted_by text not null,
    -- The day (since 1970, UTC) of which this is the refill of mock credits; null for every other grant.
    refill_day integer,
    created_at integer not null,
    constraint credit_grant_refill unique (organization, mode, refill_day)
) without rowid;

create index credit_grant_by_tenant on credit_grant (organization, mode, created_at, amount);

-- What a tenant has spent, and what is held for photos that are not ready yet: the sums of its rows. In parts, so that
-- processes that write at the same time do not wait for each other; a part alone means nothing and may be negative.
create table credit_shard (
    organization blob not null,
    mode text not null,
    part integer not null,
    held integer not null,
    spent integer not null,
    constraint credit_shard_key primary key (organization, mode, part)
) without rowid;

-- What was done, by day: the ledger. In parts as above. No reference: it outlives its album.
create table usage_rollup (
    organization blob not null,
    mode text not null,
    -- Days since 1970, UTC.
    day integer not null,
    album blob not null,
    operation text not null,
    part integer not null,
    count integer not null,
    credits integer not null,
    constraint usage_rollup_key primary key (organization, mode, day, album, operation, part)
) without rowid;

create index usage_rollup_by_day on usage_rollup (day);

-- Tenants that were told that their credits are low. A row goes when they are not low any more.
create table credit_low (
    organization blob not null,
    mode text not null,
    told_at integer not null,
    constraint credit_low_key primary key (organization, mode)
) without rowid;

-- How much of a limit all processes together have taken in the minute that begins at a time. Used by several processes on
-- one database; a process alone counts in memory.
create table rate_window (
    api_key blob not null,
    class text not null,
    -- Seconds since 1970.
    begins integer not null,
    taken integer not null,
    constraint rate_window_key primary key (api_key, class, begins)
) without rowid;

create index rate_window_age on rate_window (begins);

-- What is held for it; 0 for one that waits for its upload, failed or was charged.
alter table photo add column held integer not null default 0;
-- When it was charged; null for one that was never ready. Later rounds of processing cost nothing.
alter table photo add column charged_at integer;
-- A JSON object of the key's own limits by class; null without any.
alter table api_key add column limits text;
-- When a search with it was charged.
alter table probe add column charged_at integer;

-- Photos that exist are never charged: nobody agreed to pay for them.
update photo set charged_at = coalesce(settled_at, created_at);

-- A trigger, so that every way to delete a photo releases its hold.
create trigger photo_hold_delete after delete on photo when old.held <> 0 begin
    insert into credit_shard (organization, mode, part, held, spent)
        select organization, mode, 0, -old.held, 0 from album where id = old.album
        on conflict (organization, mode, part) do update set held = held + excluded.held;
end;
