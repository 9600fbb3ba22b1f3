-- Albums on their way out, and changes that can be told apart.

-- When its deletion began. From then on the album does not exist for anybody, while its rows go in steps.
alter table album add column closed_at integer;
create index album_closed on album (closed_at) where closed_at is not null;

-- A random number a change. After a failover or a restore the same number may name another change: a face index that has
-- seen one compares its mark, and begins anew when it is not the same.
alter table photo_change add column mark integer not null default 0;
