-- Galleries: the public pages of albums, and what visitors do there.

create table gallery (
    album blob not null constraint gallery_key primary key
        constraint gallery_album references album (id) on delete cascade,
    enabled integer not null,
    -- The secret part of its address, sealed, and its SHA-256, by which it is found.
    link blob not null,
    link_digest blob not null constraint gallery_link_unique unique,
    -- JSON: what visitors may do.
    settings text not null,
    -- From when on it says that it is over.
    expires_at integer,
    -- How often it was opened and searched.
    opened integer not null default 0,
    searches integer not null default 0,
    updated_at integer not null
) without rowid;

-- Who agreed that a selfie is compared: neither an address nor a picture.
create table gallery_consent (
    id blob not null constraint gallery_consent_key primary key,
    album blob not null constraint gallery_consent_album references album (id) on delete cascade,
    -- The version of the words that were agreed to, and their language.
    text_version integer not null,
    language text not null,
    -- The selfie; no reference, because it is deleted long before.
    probe blob not null,
    given_at integer not null,
    withdrawn_at integer
) without rowid;

create index gallery_consent_by_album on gallery_consent (album, id);

-- Searches of a visitor, and of a network, on a day: by HMACs that name nobody.
create table gallery_visitor (
    album blob not null constraint gallery_visitor_album references album (id) on delete cascade,
    visitor blob not null,
    day integer not null,
    searches integer not null,
    constraint gallery_visitor_key primary key (album, visitor, day)
) without rowid;

-- What visitors say of photos: that they are not in one, or that it should not be there.
create table gallery_report (
    id blob not null constraint gallery_report_key primary key,
    album blob not null,
    photo blob not null,
    kind text not null constraint gallery_report_kind check (kind in ('not_me', 'report')),
    visitor blob not null,
    note text not null,
    created_at integer not null,
    constraint gallery_report_photo foreign key (album, photo) references photo (album, id) on delete cascade,
    constraint gallery_report_once unique (album, photo, kind, visitor)
) without rowid;
