-- What the queue needs to serve organizations in turn, by what their photos cost.

-- Whose photo it is, set when the photo is queued, so that the queue finds the next organization in its index. Photos that
-- were queued by an older version have the highest id: they count as those of one unknown organization.
alter table photo add column organization blob not null default x'ffffffffffffffffffffffffffffffff';
-- Of the upload that was confirmed last; null for one that an older version confirmed.
alter table photo add column size_bytes integer;

-- The head of the queue and of the outbox, organization by organization and album by album. They replace `photo_fresh`
-- and `photo_unpublished`, which older versions read during a rolling update.
create index photo_waiting on photo (organization, album, confirmed_at, id, size_bytes)
    where state = 'queued' and attempts = 0;
create index photo_outbox on photo (organization, album, confirmed_at, id, size_bytes)
    where state = 'queued' and published_at is null;
