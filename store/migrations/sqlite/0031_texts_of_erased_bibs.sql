-- Texts that say a bib, for its erasure: those that no search finds, and what the reader said where the rules of the album say
-- otherwise. `seen_text_found` has the others. On Postgres: `CONCURRENT_INDEXES`.
create index seen_text_unfound on seen_text (album, text)
    where standing not in ('INDEXED', 'CANDIDATE', 'NOT_ON_START_LIST', 'PARTIAL');
create index seen_text_read_as on seen_text (album, read_as) where read_as is not null;
