-- What else each text may say, and the bibs of an event, by which texts are judged without being read again.

-- The encoded lattice of the reading, and the recogniser that made it. Null for texts from before this column.
alter table seen_text add column lattice blob;
alter table seen_text add column recogniser text;
-- What the recogniser itself said, where the rules of the album say otherwise: null where they agree.
alter table seen_text add column read_as text;
alter table seen_text add column read_confidence real;
alter table seen_text add column read_standing text;

-- The version of the rules (start list, format) by which bibs of this album are judged; 0 for none, ever.
alter table album add column list_version integer not null default 0;
-- By which version the texts of a photo were judged.
alter table photo add column list_version integer not null default 0;
create index photo_unjudged on photo (album, list_version, id) where state = 'ready';

create index seen_text_found on seen_text (album, text)
    where standing in ('INDEXED', 'CANDIDATE', 'NOT_ON_START_LIST', 'PARTIAL');

create table start_list (
    album blob not null constraint start_list_key primary key
        constraint start_list_album references album (id) on delete cascade,
    -- The version of the album with which it was last imported.
    version integer not null,
    imported_at integer not null,
    -- The key that imported it.
    imported_by blob not null
) without rowid;

create table start_list_entry (
    album blob not null constraint start_list_entry_album references start_list (album) on delete cascade,
    -- Upper-case letters and digits, as printed.
    bib text not null,
    wave text,
    team text,
    start_at integer,
    -- 1: a number that nobody wears.
    excluded integer not null default 0,
    constraint start_list_entry_key primary key (album, bib)
) without rowid;

-- Albums of which some photos were judged by an older version. Whoever makes that so holds the lock of the album's row.
create table album_to_judge (
    album blob not null constraint album_to_judge_key primary key
        constraint album_to_judge_album references album (id) on delete cascade
) without rowid;
