-- Credits, usage and rate limits: `migrations/sqlite` says what tables and columns mean.

create table credit_grant (
    id uuid not null constraint credit_grant_key primary key,
    organization uuid not null constraint credit_grant_organization references organization (id),
    mode text not null constraint credit_grant_mode check (mode in ('test', 'live')),
    amount bigint not null,
    note text not null,
    granted_by text not null,
    refill_day bigint,
    created_at bigint not null,
    constraint credit_grant_refill unique (organization, mode, refill_day)
);

create index credit_grant_by_tenant on credit_grant (organization, mode, created_at, amount);

create table credit_shard (
    organization uuid not null,
    mode text collate "C" not null,
    part bigint not null,
    held bigint not null,
    spent bigint not null,
    constraint credit_shard_key primary key (organization, mode, part)
)
-- A few rows, written with every batch of photos: with room in their page new versions stay off the index.
with (fillfactor = 25);

create table usage_rollup (
    organization uuid not null,
    mode text collate "C" not null,
    day bigint not null,
    album uuid not null,
    operation text collate "C" not null,
    part bigint not null,
    count bigint not null,
    credits bigint not null,
    constraint usage_rollup_key primary key (organization, mode, day, album, operation, part)
)
with (fillfactor = 50);

create index usage_rollup_by_day on usage_rollup (day);

create table credit_low (
    organization uuid not null,
    mode text not null,
    told_at bigint not null,
    constraint credit_low_key primary key (organization, mode)
);

create table rate_window (
    api_key uuid not null,
    class text collate "C" not null,
    begins bigint not null,
    taken bigint not null,
    constraint rate_window_key primary key (api_key, class, begins)
)
with (fillfactor = 50);

create index rate_window_age on rate_window (begins);

-- Photos that exist are never charged. A default that rewrites no row gives them the time 0, and is dropped for those that
-- come.
alter table photo
    add column held bigint not null default 0,
    add column charged_at bigint default 0;
alter table photo alter column charged_at drop default;
alter table api_key add column limits text;
alter table probe add column charged_at bigint;

-- For all photos of a statement, in the order in which credit_shard is locked. Those that go by cascade, because their album
-- is gone, have nothing held: albums are deleted after their photos.
create function release_holds() returns trigger language plpgsql set search_path from current as $$
begin
    insert into credit_shard as shard (organization, mode, part, held, spent)
        select album.organization, album.mode, pg_backend_pid() % 16, -sum(removed.held), 0
        from removed join album on album.id = removed.album
        where removed.held <> 0
        group by album.organization, album.mode
        order by album.organization, album.mode
        on conflict (organization, mode, part) do update set held = shard.held + excluded.held;
    return null;
end
$$;

create trigger photo_hold_delete after delete on photo
    referencing old table as removed for each statement execute function release_holds();

-- During a rolling update a version that does not know credits settles photos for which something is held. What it should
-- have done is done for it: nobody else leaves a hold behind.
create function settle_hold() returns trigger language plpgsql set search_path from current as $$
declare
    is_charged boolean := new.state = 'ready' and new.charged_at is null;
    spent bigint := case when is_charged then new.held else 0 end;
    -- Parts that no other statement writes: this locks rows photo by photo, and not in the order of the others.
    backend_part bigint := 16 + pg_backend_pid() % 16;
begin
    if is_charged then
        insert into usage_rollup as rollup (organization, mode, day, album, operation, part, count, credits)
            select organization, mode, new.settled_at / 86400000000, new.album, 'photo', backend_part, 1, spent
            from album where id = new.album
            on conflict (organization, mode, day, album, operation, part)
            do update set count = rollup.count + excluded.count, credits = rollup.credits + excluded.credits;
    end if;
    insert into credit_shard as shard (organization, mode, part, held, spent)
        select organization, mode, backend_part, -new.held, spent from album where id = new.album
        on conflict (organization, mode, part)
        do update set held = shard.held + excluded.held, spent = shard.spent + excluded.spent;
    update photo set held = 0, charged_at = case when is_charged then new.settled_at else charged_at end
        where album = new.album and id = new.id;
    return null;
end
$$;

create trigger photo_hold_settle after update on photo
    for each row when (new.held <> 0 and new.state in ('ready', 'failed')) execute function settle_hold();
