-- Formats of bibs: `migrations/sqlite` says what the columns mean.

alter table album add column learn_at bigint not null default 0;

create table bib_format (
    album uuid not null constraint bib_format_key primary key
        constraint bib_format_album references album (id) on delete cascade,
    learned text not null,
    learned_at bigint not null
);

create table album_to_learn (
    album uuid not null constraint album_to_learn_key primary key
        constraint album_to_learn_album references album (id) on delete cascade
);
