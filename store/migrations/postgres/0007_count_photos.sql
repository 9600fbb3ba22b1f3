-- Counts the photos that exist, in one statement that blocks nobody who writes photos: its snapshot contains a change of a
-- photo and the row that the triggers of the previous migration inserted for it, or neither of them. An album that is
-- being deleted waits, so that none is counted after its rows are gone.
with existing as materialized (
    select id from album for key share
)
insert into photo_count (album, state, count)
select album, state, sum(difference) from (
    select album, state, count(*) as difference from photo group by album, state
    union all
    select album, state, -count from photo_count
) as missing
where album in (select id from existing)
group by album, state having sum(difference) <> 0;
