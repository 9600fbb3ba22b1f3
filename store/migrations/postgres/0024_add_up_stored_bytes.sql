-- Adds up the originals of the photos that exist, in one statement that blocks nobody who writes photos: see 0007.
with existing as materialized (
    select id from album for key share
)
insert into photo_count (album, state, count, objects, bytes)
select album, state, 0, sum(objects), sum(bytes) from (
    select album, state,
        (size_bytes is not null)::int + 2 * (picture_bytes > 0)::int + (marked_bytes > 0)::int as objects,
        coalesce(size_bytes, 0) + picture_bytes + marked_bytes as bytes
    from photo
    union all
    select album, state, -objects, -bytes from photo_count
) as missing
where album in (select id from existing)
group by album, state having sum(objects) <> 0 or sum(bytes) <> 0;
