-- Albums on their way out, and changes that can be told apart: `migrations/sqlite` says what the columns mean.

alter table album add column closed_at bigint;
create index album_closed on album (closed_at) where closed_at is not null;

alter table photo_change add column mark bigint not null default 0;
