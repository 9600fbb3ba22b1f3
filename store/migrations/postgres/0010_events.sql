-- Events, and how far their publisher has got: `migrations/sqlite` says what the columns mean.
--
-- The publisher locks rows of `album_change_feed`, for which writers of an album wait while they have locked the album. So it
-- must never wait for an album: there is no reference to one here, and a trigger deletes what belongs to an album.

create table event (
    sequence bigint generated always as identity constraint event_key primary key,
    id uuid not null constraint event_id_unique unique,
    organization uuid not null,
    mode text not null constraint event_mode check (mode in ('test', 'live')),
    type text not null,
    album uuid,
    data text not null,
    created_at bigint not null
);

create index event_by_tenant on event (organization, mode, sequence);

create table event_loss (
    organization uuid not null,
    mode text not null,
    sequence bigint not null,
    constraint event_loss_key primary key (organization, mode)
);

create table event_outbox (
    id uuid not null constraint event_outbox_key primary key,
    organization uuid not null,
    mode text not null,
    type text not null,
    album uuid,
    data text not null,
    created_at bigint not null
);

create table album_change_feed (
    album uuid not null constraint album_change_feed_key primary key,
    since bigint not null
)
-- Written with every batch of results: with room in its page the row's new version stays off the index.
with (fillfactor = 50);

-- The update changes nothing and locks the row: a publisher that reads changes leaves out albums with a transaction whose
-- changes it cannot see yet, and takes them at its next turn.
create function note_album_change() returns trigger language plpgsql set search_path from current as $$
begin
    insert into album_change_feed as feed (album, since)
        values (new.id, (extract(epoch from clock_timestamp()) * 1000000)::bigint)
        on conflict (album) do update set since = feed.since;
    return null;
end
$$;

create trigger album_changes after update of changes on album
    for each row when (new.changes > old.changes) execute function note_album_change();

create table event_cursor (
    album uuid not null constraint event_cursor_key primary key,
    published bigint not null,
    mark bigint,
    idle_check_at bigint,
    idle_told_at bigint not null default 0
)
with (fillfactor = 50);

create index event_cursor_idle on event_cursor (idle_check_at) where idle_check_at is not null;

-- In the order in which the publisher locks them.
create function delete_event_cursor() returns trigger language plpgsql set search_path from current as $$
begin
    delete from album_change_feed where album = old.id;
    delete from event_cursor where album = old.id;
    return null;
end
$$;

create trigger event_cursor_of_album after delete on album
    for each row execute function delete_event_cursor();

insert into event_cursor (album, published) select id, changes from album;
