-- Galleries: `migrations/sqlite` says what the columns mean.

create table gallery (
    album uuid not null constraint gallery_key primary key
        constraint gallery_album references album (id) on delete cascade,
    enabled bigint not null,
    link bytea not null,
    link_digest bytea not null constraint gallery_link_unique unique,
    settings text not null,
    expires_at bigint,
    opened bigint not null default 0,
    searches bigint not null default 0,
    updated_at bigint not null
);

create table gallery_consent (
    id uuid not null constraint gallery_consent_key primary key,
    album uuid not null constraint gallery_consent_album references album (id) on delete cascade,
    text_version bigint not null,
    language text not null,
    probe uuid not null,
    given_at bigint not null,
    withdrawn_at bigint
);

create index gallery_consent_by_album on gallery_consent (album, id);

create table gallery_visitor (
    album uuid not null constraint gallery_visitor_album references album (id) on delete cascade,
    visitor bytea not null,
    day bigint not null,
    searches bigint not null,
    constraint gallery_visitor_key primary key (album, visitor, day)
);

create table gallery_report (
    id uuid not null constraint gallery_report_key primary key,
    album uuid not null,
    photo uuid not null,
    kind text not null constraint gallery_report_kind check (kind in ('not_me', 'report')),
    visitor bytea not null,
    note text not null,
    created_at bigint not null,
    constraint gallery_report_photo foreign key (album, photo) references photo (album, id) on delete cascade,
    constraint gallery_report_once unique (album, photo, kind, visitor)
);
