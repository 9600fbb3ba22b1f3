-- What processing photos cost: `migrations/sqlite` says what the columns mean.

alter table photo add column cpu_us bigint not null default 0;
alter table photo add column device_us bigint not null default 0;
alter table photo add column bytes_read bigint not null default 0;
alter table photo add column bytes_written bigint not null default 0;

create table cost_rollup (
    organization uuid not null,
    mode text not null,
    day bigint not null,
    album uuid not null,
    stage text not null,
    part bigint not null,
    photos bigint not null,
    cpu_us bigint not null,
    device_us bigint not null,
    bytes_read bigint not null,
    bytes_written bigint not null,
    constraint cost_rollup_key primary key (organization, mode, day, album, stage, part)
);

create index cost_rollup_by_day on cost_rollup (day);
