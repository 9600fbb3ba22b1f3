-- Erasures: who asked to be gone, what was removed for them, the receipt that says so, and what keeps it from coming back.

create table erasure (
    id blob not null constraint erasure_key primary key,
    -- No references: a receipt outlives what it is about.
    organization blob not null,
    mode text not null constraint erasure_mode check (mode in ('test', 'live')),
    album blob not null,
    kind text not null constraint erasure_kind check (kind in ('face', 'bib', 'photo', 'album')),
    -- 'running' until it was looked for everywhere and nothing was found.
    state text not null constraint erasure_state check (state in ('running', 'done')),
    asked_by blob not null,
    asked_at integer not null,
    -- JSON: what is still to be removed, and how often that was tried. No bib and no vector.
    plan text not null,
    -- JSON: numbers.
    removed text not null,
    -- When the face indexes of all processes must have been brought up to date.
    erased_at integer not null,
    finished_at integer,
    -- JSON with its signature; exactly when it is done.
    receipt text,
    constraint erasure_done_with_its_receipt check ((state = 'done') = (receipt is not null))
) without rowid;

create index erasure_by_tenant on erasure (organization, mode, id);
create index erasure_running on erasure (id) where state = 'running';

-- Where faces were erased. A face that is detected there again gets no vector.
create table erased_place (
    id integer constraint erased_place_key primary key,
    album blob not null,
    photo blob not null,
    box_top real not null,
    box_left real not null,
    box_width real not null,
    box_height real not null,
    erasure blob not null,
    constraint erased_place_photo foreign key (album, photo) references photo (album, id) on delete cascade
);

create index erased_place_by_photo on erased_place (album, photo);
create index erased_place_by_erasure on erased_place (erasure);

-- Bibs that were erased, as HMAC-SHA256. A text that says one of them is stored without what it says.
create table erased_bib (
    album blob not null constraint erased_bib_album references album (id) on delete cascade,
    digest blob not null,
    erasure blob not null,
    constraint erased_bib_key primary key (album, digest)
) without rowid;

create index erased_bib_by_erasure on erased_bib (erasure);

-- The keys of these digests, sealed: there are so few bibs that a digest without a secret would tell which one it is of.
create table erased_bib_secret (
    album blob not null constraint erased_bib_secret_key primary key
        constraint erased_bib_secret_album references album (id) on delete cascade,
    secret blob not null
) without rowid;

-- The public keys that receipts were ever signed with, so that they can be checked after the master secret has changed.
create table receipt_key (
    -- The thumbprint of the key (RFC 7638).
    id text not null constraint receipt_key_key primary key,
    public_key blob not null,
    created_at integer not null
) without rowid;

-- How many erasures of faces and bibs it has had: most albums have none, and their photos need no look at the tables above.
alter table album add column erasures integer not null default 0;
-- When all its faces were erased, by its retention; null when faces are recognised. Results that were read before get no
-- vectors.
alter table album add column faces_erased_at integer;
-- Of which time its owner was told that faces or photos are going to be erased then; 0 for none.
alter table album add column told_faces_expire_at integer not null default 0;
alter table album add column told_photos_expire_at integer not null default 0;
