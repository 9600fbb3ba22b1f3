-- Erasures: `migrations/sqlite` says what the columns mean.

create table erasure (
    id uuid not null constraint erasure_key primary key,
    organization uuid not null,
    mode text not null constraint erasure_mode check (mode in ('test', 'live')),
    album uuid not null,
    kind text not null constraint erasure_kind check (kind in ('face', 'bib', 'photo', 'album')),
    state text not null constraint erasure_state check (state in ('running', 'done')),
    asked_by uuid not null,
    asked_at bigint not null,
    plan text not null,
    removed text not null,
    erased_at bigint not null,
    finished_at bigint,
    receipt text,
    constraint erasure_done_with_its_receipt check ((state = 'done') = (receipt is not null))
);

create index erasure_by_tenant on erasure (organization, mode, id);
create index erasure_running on erasure (id) where state = 'running';

create table erased_place (
    id bigint generated always as identity constraint erased_place_key primary key,
    album uuid not null,
    photo uuid not null,
    box_top double precision not null,
    box_left double precision not null,
    box_width double precision not null,
    box_height double precision not null,
    erasure uuid not null,
    constraint erased_place_photo foreign key (album, photo) references photo (album, id) on delete cascade
);

create index erased_place_by_photo on erased_place (album, photo);
create index erased_place_by_erasure on erased_place (erasure);

create table erased_bib (
    album uuid not null constraint erased_bib_album references album (id) on delete cascade,
    digest bytea not null,
    erasure uuid not null,
    constraint erased_bib_key primary key (album, digest)
);

create index erased_bib_by_erasure on erased_bib (erasure);

create table erased_bib_secret (
    album uuid not null constraint erased_bib_secret_key primary key
        constraint erased_bib_secret_album references album (id) on delete cascade,
    secret bytea not null
);

create table receipt_key (
    id text not null constraint receipt_key_key primary key,
    public_key bytea not null,
    created_at bigint not null
);

alter table album add column erasures bigint not null default 0;
alter table album add column faces_erased_at bigint;
alter table album add column told_faces_expire_at bigint not null default 0;
alter table album add column told_photos_expire_at bigint not null default 0;
