-- Events: what partners are told, in an order of its own for each tenant, and how far the publisher of events has got.

create table event (
    -- Rises in the order of the commits, because one process at a time publishes. Never used twice.
    sequence integer constraint event_key primary key autoincrement,
    id blob not null constraint event_id_unique unique,
    organization blob not null,
    mode text not null constraint event_mode check (mode in ('test', 'live')),
    type text not null,
    -- No reference: an event outlives its album.
    album blob,
    -- JSON. Ids, reasons and counts only, so that there is nothing in it to erase.
    data text not null,
    -- When it happened.
    created_at integer not null
);

create index event_by_tenant on event (organization, mode, sequence);

-- The newest event of each tenant that was deleted because of its age: whoever asks for what came before it has missed some.
create table event_loss (
    organization blob not null,
    mode text not null,
    sequence integer not null,
    constraint event_loss_key primary key (organization, mode)
) without rowid;

-- Events without a number yet, each written by the transaction in which it happened.
create table event_outbox (
    id blob not null constraint event_outbox_key primary key,
    organization blob not null,
    mode text not null,
    type text not null,
    album blob,
    data text not null,
    created_at integer not null
) without rowid;

-- Albums with changes that the publisher has not read. A row of its own and no index on `album`: an index that names
-- `changes` would be written with every batch of results.
create table album_change_feed (
    album blob not null constraint album_change_feed_key primary key
        constraint album_change_feed_album references album (id) on delete cascade,
    -- When the first of these changes was made.
    since integer not null
) without rowid;

-- A trigger, so that the changes of a version that does not know this table are told too.
create trigger album_changes after update of changes on album when new.changes > old.changes begin
    insert into album_change_feed (album, since)
        values (new.id, cast(unixepoch('now', 'subsec') * 1000000 as integer))
        on conflict (album) do nothing;
end;

-- How far the publisher has got in the changes of an album. An album without a row is new: it begins with its first.
create table event_cursor (
    album blob not null constraint event_cursor_key primary key
        constraint event_cursor_album references album (id) on delete cascade,
    -- The last change whose photos were told.
    published integer not null,
    -- Its `photo_change.mark`: after a failover or a restore another change may have its number. Null: not known.
    mark integer,
    -- When to find out whether the album is idle; null while that was told of its last photo.
    idle_check_at integer,
    -- When it was last told that it is; 0 for never.
    idle_told_at integer not null default 0
) without rowid;

create index event_cursor_idle on event_cursor (idle_check_at) where idle_check_at is not null;

-- Nothing old is told.
insert into event_cursor (album, published) select id, changes from album;
