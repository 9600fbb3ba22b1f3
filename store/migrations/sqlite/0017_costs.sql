-- What processing photos cost: of each photo, and summed up by album, day and stage.

-- Over all attempts whose outcome was written. No index names them: rows are updated in place.
alter table photo add column cpu_us integer not null default 0;
alter table photo add column device_us integer not null default 0;
alter table photo add column bytes_read integer not null default 0;
alter table photo add column bytes_written integer not null default 0;

-- In parts, as `usage_rollup`: a part alone means nothing. No reference: it outlives its album.
create table cost_rollup (
    organization blob not null,
    mode text not null,
    -- Days since 1970, UTC.
    day integer not null,
    album blob not null,
    -- A stage of the pipeline; empty for the photos themselves, which have no cost of their own.
    stage text not null,
    part integer not null,
    -- That the stage worked on; of an empty stage those that ended.
    photos integer not null,
    -- CPU time of threads, and time of calls of a device, microseconds.
    cpu_us integer not null,
    device_us integer not null,
    bytes_read integer not null,
    bytes_written integer not null,
    constraint cost_rollup_key primary key (organization, mode, day, album, stage, part)
) without rowid;

create index cost_rollup_by_day on cost_rollup (day);
