-- The rows of the embedded profile: who may ask (organization, api_key), what there is (album, photo), what was seen
-- (face, seen_text), what changed since a face index last looked (photo_change), and selfies while they live (probe).
--
-- Ids are UUID version 7 in 16 bytes. Times are microseconds since 1970 in integers: they sort, and both databases
-- index them as they are. The work queue is a part of `photo`: a photo and its place in the queue can never disagree.
-- Everything below an album goes with it by cascade.

create table organization (
    id blob not null constraint organization_key primary key,
    name text not null constraint organization_name_unique unique,
    created_at integer not null
) without rowid;

create table api_key (
    id blob not null constraint api_key_key primary key,
    organization blob not null constraint api_key_organization references organization (id),
    mode text not null constraint api_key_mode check (mode in ('test', 'live')),
    label text not null,
    hint text not null,
    -- SHA-256 of the key's full text; the key itself is nowhere.
    digest blob not null constraint api_key_digest_unique unique,
    -- A JSON list of scope names.
    scopes text not null,
    created_at integer not null,
    last_used_at integer,
    expires_at integer,
    revoked_at integer
) without rowid;

create table album (
    id blob not null constraint album_key primary key,
    organization blob not null constraint album_organization references organization (id),
    mode text not null constraint album_mode check (mode in ('test', 'live')),
    created_by blob not null,
    title text not null,
    -- The title in lower case by the rules of Unicode, which SQLite's own `lower` does not know.
    title_folded text not null,
    cover_url text,
    -- A JSON list.
    tags text not null,
    -- JSON.
    config text not null,
    -- Counts the transactions that changed faces of this album. Face indexes follow it.
    changes integer not null default 0,
    created_at integer not null,
    updated_at integer not null
) without rowid;

create index album_by_owner on album (organization, mode, id);

create table photo (
    album blob not null constraint photo_album references album (id) on delete cascade,
    id blob not null,
    filename text not null,
    content_type text not null,
    state text not null constraint photo_state
        check (state in ('awaiting_upload', 'queued', 'processing', 'ready', 'failed')),
    -- Why it failed, exactly when it did; the detail is for operators.
    failure text,
    failure_detail text,
    -- Of the upright photo, pixels.
    width integer,
    height integer,
    taken_at integer,
    camera text,
    created_at integer not null,
    updated_at integer not null,
    confirmed_at integer,
    -- When it last became ready or failed.
    settled_at integer,
    -- Leases that ended without a word, the running one included. Above zero the photo is a suspect.
    attempts integer not null default 0,
    -- The running lease: the fence of everything its holder writes.
    lease blob,
    -- When the running lease lapses; 0 without one.
    lease_until integer not null default 0,
    constraint photo_key primary key (album, id),
    constraint photo_failure_with_its_state check ((state = 'failed') = (failure is not null)),
    constraint photo_lease_with_its_state check ((state = 'processing') = (lease is not null))
) without rowid;

-- Lists and counts by state.
create index photo_by_state on photo (album, state, id);
-- The head of the queue, album by album.
create index photo_fresh on photo (album, confirmed_at, id) where state = 'queued' and attempts = 0;
-- Suspects, those without a running lease first.
create index photo_suspect on photo (lease_until) where state in ('queued', 'processing') and attempts > 0;
create unique index photo_lease on photo (lease) where lease is not null;
-- The rate of `albums/progress`.
create index photo_settled on photo (album, settled_at) where settled_at is not null;

-- Photos whose faces changed or went away, by the number of the change. Written in the transaction that counts
-- `album.changes` up: whoever has seen change n has seen everything up to n.
create table photo_change (
    album blob not null constraint photo_change_album references album (id) on delete cascade,
    change integer not null,
    -- No reference: a deleted photo leaves its change behind.
    photo blob not null,
    constraint photo_change_key primary key (album, change, photo)
) without rowid;

-- A row of 1 to 2 KB is too wide for a tree without row ids.
create table face (
    id integer constraint face_key primary key,
    album blob not null,
    photo blob not null,
    box_top real not null,
    box_left real not null,
    box_width real not null,
    box_height real not null,
    confidence real not null,
    -- Why it is not searched; it has a vector exactly when this is null.
    unindexed text,
    model text,
    -- f32, little endian, unit length.
    embedding blob,
    constraint face_photo foreign key (album, photo) references photo (album, id) on delete cascade,
    constraint face_indexed_with_its_vector
        check ((unindexed is null) = (embedding is not null) and (model is null) = (embedding is null))
);

create index face_by_photo on face (album, photo);

create table seen_text (
    id integer constraint seen_text_key primary key,
    album blob not null,
    photo blob not null,
    text text not null,
    box_top real not null,
    box_left real not null,
    box_width real not null,
    box_height real not null,
    confidence real not null,
    -- 'INDEXED', 'CANDIDATE', or the reason why no search finds it.
    standing text not null,
    constraint seen_text_photo foreign key (album, photo) references photo (album, id) on delete cascade
);

create index seen_text_by_photo on seen_text (album, photo);
create index seen_text_searched on seen_text (album, text) where standing in ('INDEXED', 'CANDIDATE');

create table probe (
    id blob not null constraint probe_key primary key,
    album blob not null constraint probe_album references album (id) on delete cascade,
    expires_at integer not null,
    model text,
    embedding blob,
    constraint probe_vector_with_its_model check ((model is null) = (embedding is null))
) without rowid;

create index probe_by_album on probe (album);
create index probe_expiry on probe (expires_at);
