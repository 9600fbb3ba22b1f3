-- The rows of the cluster: the tables of `migrations/sqlite`, with the types that Postgres has for them. The same version
-- number brings both databases to the same tables; what a column means is said there and only there.
--
-- Ids are native UUIDs. Times stay microseconds in bigints, and lists and configurations JSON texts, so that the same
-- statements run on both.

create table organization (
    id uuid not null constraint organization_key primary key,
    name text not null constraint organization_name_unique unique,
    created_at bigint not null
);

create table api_key (
    id uuid not null constraint api_key_key primary key,
    organization uuid not null constraint api_key_organization references organization (id),
    mode text not null constraint api_key_mode check (mode in ('test', 'live')),
    label text not null,
    hint text not null,
    digest bytea not null constraint api_key_digest_unique unique,
    scopes text not null,
    created_at bigint not null,
    last_used_at bigint,
    expires_at bigint,
    revoked_at bigint
);

create table album (
    id uuid not null constraint album_key primary key,
    organization uuid not null constraint album_organization references organization (id),
    mode text not null constraint album_mode check (mode in ('test', 'live')),
    created_by uuid not null,
    title text not null,
    title_folded text not null,
    cover_url text,
    tags text not null,
    config text not null,
    changes bigint not null default 0,
    created_at bigint not null,
    updated_at bigint not null
)
-- Every batch of results counts `changes` up: with room in its page the row's new version stays off the indexes.
with (fillfactor = 50);

create index album_by_owner on album (organization, mode, id);

create table photo (
    album uuid not null constraint photo_album references album (id) on delete cascade,
    id uuid not null,
    filename text not null,
    content_type text not null,
    -- Compared byte by byte: no rules of a language.
    state text collate "C" not null constraint photo_state
        check (state in ('awaiting_upload', 'queued', 'processing', 'ready', 'failed')),
    failure text,
    failure_detail text,
    width bigint,
    height bigint,
    taken_at bigint,
    camera text,
    created_at bigint not null,
    updated_at bigint not null,
    confirmed_at bigint,
    settled_at bigint,
    attempts bigint not null default 0,
    lease uuid,
    lease_until bigint not null default 0,
    constraint photo_key primary key (album, id),
    constraint photo_failure_with_its_state check ((state = 'failed') = (failure is not null)),
    constraint photo_lease_with_its_state check ((state = 'processing') = (lease is not null))
)
-- Every photo passes four states, each a new version of its row: at the default of a fifth dead rows the head of the queue
-- would be sought among a hundred thousand of them.
with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.05);

create index photo_by_state on photo (album, state, id);
create index photo_fresh on photo (album, confirmed_at, id) where state = 'queued' and attempts = 0;
create index photo_suspect on photo (lease_until) where state in ('queued', 'processing') and attempts > 0;
create unique index photo_lease on photo (lease) where lease is not null;
create index photo_settled on photo (album, settled_at) where settled_at is not null;

create table photo_change (
    album uuid not null constraint photo_change_album references album (id) on delete cascade,
    change bigint not null,
    photo uuid not null,
    constraint photo_change_key primary key (album, change, photo)
);

create table face (
    id bigint generated always as identity constraint face_key primary key,
    album uuid not null,
    photo uuid not null,
    box_top double precision not null,
    box_left double precision not null,
    box_width double precision not null,
    box_height double precision not null,
    confidence double precision not null,
    unindexed text,
    model text,
    embedding bytea,
    constraint face_photo foreign key (album, photo) references photo (album, id) on delete cascade,
    constraint face_indexed_with_its_vector
        check ((unindexed is null) = (embedding is not null) and (model is null) = (embedding is null))
);

-- In the row's own page, uncompressed: floats do not shrink, and an album is loaded whole.
alter table face alter column embedding set storage plain;

create index face_by_photo on face (album, photo);

create table seen_text (
    id bigint generated always as identity constraint seen_text_key primary key,
    album uuid not null,
    photo uuid not null,
    text text collate "C" not null,
    box_top double precision not null,
    box_left double precision not null,
    box_width double precision not null,
    box_height double precision not null,
    confidence double precision not null,
    standing text not null,
    constraint seen_text_photo foreign key (album, photo) references photo (album, id) on delete cascade
);

create index seen_text_by_photo on seen_text (album, photo);
create index seen_text_searched on seen_text (album, text) where standing in ('INDEXED', 'CANDIDATE');

create table probe (
    id uuid not null constraint probe_key primary key,
    album uuid not null constraint probe_album references album (id) on delete cascade,
    expires_at bigint not null,
    model text,
    embedding bytea,
    constraint probe_vector_with_its_model check ((model is null) = (embedding is null))
);

create index probe_by_album on probe (album);
create index probe_expiry on probe (expires_at);
