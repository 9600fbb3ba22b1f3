-- `migrations/sqlite` says what this is.
alter table gallery_report add column faces text;
