-- Photos that existed before credits, and were never ready, were given a time at which they were charged, so that they are
-- free: a time before they are ready. It is the end of time until they are, so that they are not told to be ready again.
update photo set charged_at = 9223372036854775807
    where charged_at is not null and width is null and state <> 'ready';

-- Which changes tell that photos have settled. The others are of photos that were told before: judged by other rules, erased,
-- deleted. 1 for those of a version that does not know the column.
alter table photo_change add column settled integer not null default 1;

-- Changes with lower numbers were deleted from photo_change: events were made of them, and a face index that has not seen
-- them reads the album.
alter table album add column pruned_before integer not null default 0;
