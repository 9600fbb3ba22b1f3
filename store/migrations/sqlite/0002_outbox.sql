-- Which photos a message queue carries the names of. The rows stay the truth: a queued photo that no message names yet
-- is published, whatever happened in between.

-- When a message last named the photo in this turn of it; null when none does.
alter table photo add column published_at integer;

-- What is to be published, album by album.
create index photo_unpublished on photo (album, confirmed_at, id) where state = 'queued' and published_at is null;
-- What was published and is not settled, for the sweeper that looks for lost messages.
create index photo_published on photo (published_at)
    where state in ('queued', 'processing') and published_at is not null;
