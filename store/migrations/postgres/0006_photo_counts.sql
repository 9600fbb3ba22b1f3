-- How many photos of each album are in which state: `migrations/sqlite` says why.
--
-- Triggers keep the counts, not the statements of the service: during a rolling update the version before this one still
-- writes photos and does not know this table.
--
-- The count of a state is the sum of its rows. A statement that changes photos inserts a row for each state that it
-- changed the count of, and never updates a row: transactions that change photos of one album do not wait for each other,
-- and there is no lock whose order could be wrong, as there would be with one row per album. Every now and then such a
-- statement also folds the rows of its albums into one per state, those that no other transaction is folding.
--
-- Only the triggers are created here, with a short lock. The photos that exist are counted by the next migration, while
-- photos are written.

create table photo_count (
    -- No reference: inserting a row would lock the album, out of order.
    album uuid not null,
    id bigint generated always as identity,
    -- Compared byte by byte: no rules of a language.
    state text collate "C" not null,
    count bigint not null,
    constraint photo_count_key primary key (album, id)
)
-- Most rows live for a few seconds.
with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);

-- Replaces the rows of these albums by one for each state. Rows that another transaction is folding are left to it. The
-- limit bounds the time that this adds to a statement.
create function fold_photo_count(albums uuid[]) returns void language sql set search_path from current as $$
    with taken as materialized (
        select album, id from photo_count where album = any (albums) limit 1000 for update skip locked
    ), folded as (
        delete from photo_count using taken
        where photo_count.album = taken.album and photo_count.id = taken.id
        returning photo_count.album, photo_count.state, photo_count.count
    )
    insert into photo_count (album, state, count)
    select album, state, sum(count) from folded group by album, state having sum(count) <> 0
$$;

-- `added` and `removed` are the rows of the statement as it wrote them and as they were before.
create function keep_photo_count() returns trigger language plpgsql set search_path from current as $$
declare
    changed uuid[];
begin
    if tg_op = 'INSERT' then
        with kept as (
            insert into photo_count (album, state, count)
            select album, state, count(*) from added group by album, state
            returning album
        )
        select array_agg(distinct album) into changed from kept;
    elsif tg_op = 'UPDATE' then
        with kept as (
            insert into photo_count (album, state, count)
            select album, state, sum(difference) from (
                select album, state, 1 as difference from added
                union all
                select album, state, -1 from removed
            ) as moved
            group by album, state having sum(difference) <> 0
            returning album
        )
        select array_agg(distinct album) into changed from kept;
    else
        -- Photos that go by cascade, because their album is gone, leave no counts behind.
        with kept as (
            insert into photo_count (album, state, count)
            select album, state, -count(*) from removed
            where exists (select from album where album.id = removed.album)
            group by album, state
            returning album
        )
        select array_agg(distinct album) into changed from kept;
    end if;
    -- By chance, because no transaction can know how many rows the others have inserted: after a few dozen statements.
    if changed is not null and random() < 1.0 / 32 then
        perform fold_photo_count(changed);
    end if;
    return null;
end
$$;

create function delete_photo_count() returns trigger language plpgsql set search_path from current as $$
begin
    delete from photo_count where album = old.id;
    return null;
end
$$;

create trigger photo_count_insert after insert on photo
    referencing new table as added for each statement execute function keep_photo_count();
create trigger photo_count_update after update on photo
    referencing old table as removed new table as added for each statement execute function keep_photo_count();
create trigger photo_count_delete after delete on photo
    referencing old table as removed for each statement execute function keep_photo_count();
create trigger photo_count_of_album after delete on album
    for each row execute function delete_photo_count();
