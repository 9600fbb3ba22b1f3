-- How many photos of each album are in which state. Counting 500,000 rows takes a reader a tenth of a second, and whoever
-- waits for an album asks every second.
--
-- Triggers keep the counts, not the statements of the service: they hold for every statement that writes a photo, also
-- those of a version that does not know this table.

create table photo_count (
    album blob not null constraint photo_count_album references album (id) on delete cascade,
    state text not null,
    count integer not null,
    constraint photo_count_key primary key (album, state)
) without rowid;

create trigger photo_count_insert after insert on photo begin
    insert into photo_count (album, state, count) values (new.album, new.state, 1)
        on conflict (album, state) do update set count = count + 1;
end;

create trigger photo_count_update after update of state on photo when old.state <> new.state begin
    update photo_count set count = count - 1 where album = old.album and state = old.state;
    insert into photo_count (album, state, count) values (new.album, new.state, 1)
        on conflict (album, state) do update set count = count + 1;
end;

create trigger photo_count_delete after delete on photo begin
    update photo_count set count = count - 1 where album = old.album and state = old.state;
end;

insert into photo_count (album, state, count) select album, state, count(*) from photo group by album, state;
