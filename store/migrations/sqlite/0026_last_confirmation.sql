-- From when an album's age counts: the last confirmation of a photo, written at most once an hour. Of albums that exist, when
-- their last photo was processed, which is later.
alter table album add column last_confirmed_at integer not null default 0;

update album set last_confirmed_at = coalesce(
    (select max(settled_at) from photo where photo.album = album.id and settled_at is not null), 0);
