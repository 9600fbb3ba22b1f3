-- Photos with pictures that wait or are processed again: galleries show them. Photos that are new have no width until they are
-- ready, so that creating and confirming them does not write it. On Postgres: `CONCURRENT_INDEXES`.
create index photo_waiting_with_pictures on photo (album, id, state, width)
    where state in ('queued', 'processing') and width is not null;
