-- The highest confidence that any rule may give a text; 1 for no limit. The reader sets it where characters are too small
-- to tell a number from its neighbours.
alter table seen_text add column max_confidence real not null default 1;

-- Texts from before lattices were stored, which a start list judges by their best reading alone.
create index seen_text_without_lattice on seen_text (album, photo) where lattice is null;
