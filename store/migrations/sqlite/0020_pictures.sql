-- Watermarks of albums, and tickets for downloads of many photos.

-- The version of its watermark; 0 without one.
alter table album add column watermark_version integer not null default 0;

-- The version of the watermark in its marked picture; 0 where it has none.
alter table photo add column marked_version integer not null default 0;

create table watermark (
    album blob not null constraint watermark_key primary key
        constraint watermark_album references album (id) on delete cascade,
    -- Grows with each change; the row stays when a watermark is removed, so that no version is given twice.
    version integer not null,
    -- PNG; null where it was removed.
    picture blob,
    position text not null constraint watermark_position
        check (position in ('tile', 'center', 'top_left', 'top_right', 'bottom_left', 'bottom_right')),
    opacity real not null,
    scale real not null,
    -- How often photos with another version were noticed, and up to which of these all were marked.
    asked integer not null,
    done integer not null
);

create table download (
    -- SHA-256 of the secret part of its address.
    digest blob not null constraint download_key primary key,
    album blob not null constraint download_album references album (id) on delete cascade,
    -- JSON: ids of photos.
    photos text not null,
    -- Which of their files.
    file text not null constraint download_file check (file in ('preview', 'marked', 'original')),
    expires_at integer not null
) without rowid;

create index download_by_expiry on download (expires_at);
create index download_by_album on download (album);
