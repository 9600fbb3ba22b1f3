-- Limits of confidence: `migrations/sqlite` says what the column means. The index of texts without a lattice is built after
-- all migrations, without blocking writes.

alter table seen_text add column max_confidence double precision not null default 1;
