-- What is told of photos, and which changes are kept: `migrations/sqlite` says what that means.
--
-- The rows first: the table of changes is locked for as short as can be.
update photo set charged_at = 9223372036854775807
    where charged_at is not null and width is null and state <> 'ready';

alter table photo_change add column settled bigint not null default 1;
alter table album add column pruned_before bigint not null default 0;
