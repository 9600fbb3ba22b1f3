-- The cameras of an album and the photos of one, without reading the album. Photos get their camera with their results, so that
-- creating and confirming them does not write it. On Postgres: `CONCURRENT_INDEXES`.
create index photo_by_camera on photo (album, camera, id, taken_at, state) where camera is not null;
