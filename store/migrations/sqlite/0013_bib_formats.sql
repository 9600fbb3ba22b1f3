-- The formats of bibs that albums show, learned from what was surely read.

-- At which change of the album its format is learned again.
alter table album add column learn_at integer not null default 0;

create table bib_format (
    album blob not null constraint bib_format_key primary key
        constraint bib_format_album references album (id) on delete cascade,
    -- Shapes, share, readings and exceptions, as JSON.
    learned text not null,
    learned_at integer not null
) without rowid;

-- Albums whose format is to be learned again. Whoever notes one holds the lock of the album's row.
create table album_to_learn (
    album blob not null constraint album_to_learn_key primary key
        constraint album_to_learn_album references album (id) on delete cascade
) without rowid;
