-- Runners whose bibs were not read: `migrations/sqlite` says what the column means. A constant default rewrites no row.

alter table photo add column skipped_runners bigint not null default 0;
