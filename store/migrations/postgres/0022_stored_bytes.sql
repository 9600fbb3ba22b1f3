-- What of each photo is stored, and its sums by album: `migrations/sqlite` says what the columns mean.
--
-- The sums are kept where photos are counted, by the same triggers: no statement more. Here only columns are added and the
-- triggers' functions replaced, with a short lock. The photos that exist are added up by 0024, while photos
-- are written.

alter table photo
    add column picture_bytes bigint not null default 0,
    add column marked_bytes bigint not null default 0;
alter table photo_count
    add column objects bigint not null default 0,
    add column bytes bigint not null default 0;

create or replace function fold_photo_count(albums uuid[]) returns void language sql set search_path from current as $$
    with taken as materialized (
        select album, id from photo_count where album = any (albums) limit 1000 for update skip locked
    ), folded as (
        delete from photo_count using taken
        where photo_count.album = taken.album and photo_count.id = taken.id
        returning photo_count.album, photo_count.state, photo_count.count, photo_count.objects, photo_count.bytes
    )
    insert into photo_count (album, state, count, objects, bytes)
    select album, state, sum(count), sum(objects), sum(bytes) from folded group by album, state
    having sum(count) <> 0 or sum(objects) <> 0 or sum(bytes) <> 0
$$;

create or replace function keep_photo_count() returns trigger language plpgsql set search_path from current as $$
declare
    changed uuid[];
begin
    if tg_op = 'INSERT' then
        with kept as (
            insert into photo_count (album, state, count, objects, bytes)
            select album, state, count(*),
                sum((size_bytes is not null)::int + 2 * (picture_bytes > 0)::int + (marked_bytes > 0)::int),
                sum(coalesce(size_bytes, 0) + picture_bytes + marked_bytes)
            from added group by album, state
            returning album
        )
        select array_agg(distinct album) into changed from kept;
    elsif tg_op = 'UPDATE' then
        with kept as (
            insert into photo_count (album, state, count, objects, bytes)
            select album, state, sum(difference),
                sum(difference * ((size_bytes is not null)::int + 2 * (picture_bytes > 0)::int + (marked_bytes > 0)::int)),
                sum(difference * (coalesce(size_bytes, 0) + picture_bytes + marked_bytes))
            from (
                select album, state, size_bytes, picture_bytes, marked_bytes, 1 as difference from added
                union all
                select album, state, size_bytes, picture_bytes, marked_bytes, -1 from removed
            ) as moved
            group by album, state
            having sum(difference) <> 0
                or sum(difference * (coalesce(size_bytes, 0) + picture_bytes + marked_bytes)) <> 0
                or sum(difference * ((size_bytes is not null)::int + 2 * (picture_bytes > 0)::int
                    + (marked_bytes > 0)::int)) <> 0
            returning album
        )
        select array_agg(distinct album) into changed from kept;
    else
        -- Photos that go by cascade, because their album is gone, leave no counts behind.
        with kept as (
            insert into photo_count (album, state, count, objects, bytes)
            select album, state, -count(*),
                -sum((size_bytes is not null)::int + 2 * (picture_bytes > 0)::int + (marked_bytes > 0)::int),
                -sum(coalesce(size_bytes, 0) + picture_bytes + marked_bytes)
            from removed
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
