-- From when an album's age counts: `migrations/sqlite` says more. One probe of the index by album.
alter table album add column last_confirmed_at bigint not null default 0;

update album set last_confirmed_at = coalesce(
    (select max(settled_at) from photo where photo.album = album.id and settled_at is not null), 0);
