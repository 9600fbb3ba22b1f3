-- The consent to a selfie, without reading all consents of its album: every page of a search asks for it. And searches of visitors
-- on earlier days, of all albums, for deleting them. On Postgres: `CONCURRENT_INDEXES`.
create index gallery_consent_by_probe on gallery_consent (probe, album);
create index gallery_visitor_by_day on gallery_visitor (day);
