-- Lattices and start lists: `migrations/sqlite` says what the columns mean. The indexes of photos and texts are built after
-- all migrations, without blocking writes.

alter table seen_text add column lattice bytea;
-- Hundreds of bytes at most: compressing them costs more than it saves.
alter table seen_text alter column lattice set storage plain;
alter table seen_text add column recogniser text;
alter table seen_text add column read_as text;
alter table seen_text add column read_confidence double precision;
alter table seen_text add column read_standing text;

alter table album add column list_version bigint not null default 0;
alter table photo add column list_version bigint not null default 0;

create table start_list (
    album uuid not null constraint start_list_key primary key
        constraint start_list_album references album (id) on delete cascade,
    version bigint not null,
    imported_at bigint not null,
    imported_by uuid not null
);

create table start_list_entry (
    album uuid not null constraint start_list_entry_album references start_list (album) on delete cascade,
    bib text collate "C" not null,
    wave text,
    team text,
    start_at bigint,
    excluded bigint not null default 0,
    constraint start_list_entry_key primary key (album, bib)
);

create table album_to_judge (
    album uuid not null constraint album_to_judge_key primary key
        constraint album_to_judge_album references album (id) on delete cascade
);
