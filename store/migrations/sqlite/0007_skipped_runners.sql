-- How many runners of a photo were too small and too many to read their bibs. Photos that were processed before this column
-- have none: what was skipped of them is not known.

alter table photo add column skipped_runners integer not null default 0;
