-- Watermarks and downloads: `migrations/sqlite` says what the columns mean.

alter table album add column watermark_version bigint not null default 0;
alter table photo add column marked_version bigint not null default 0;

create table watermark (
    album uuid not null constraint watermark_key primary key
        constraint watermark_album references album (id) on delete cascade,
    version bigint not null,
    picture bytea,
    position text not null constraint watermark_position
        check (position in ('tile', 'center', 'top_left', 'top_right', 'bottom_left', 'bottom_right')),
    opacity double precision not null,
    scale double precision not null,
    asked bigint not null,
    done bigint not null
);

create table download (
    digest bytea not null constraint download_key primary key,
    album uuid not null constraint download_album references album (id) on delete cascade,
    photos text not null,
    file text not null constraint download_file check (file in ('preview', 'marked', 'original')),
    expires_at bigint not null
);

create index download_by_expiry on download (expires_at);
create index download_by_album on download (album);
