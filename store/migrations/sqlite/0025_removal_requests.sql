-- Visitors ask to be removed: the organizer decides. SQLite changes no constraint of a table, so it is made once more.
create table gallery_report_new (
    id blob not null constraint gallery_report_key primary key,
    album blob not null,
    photo blob not null,
    kind text not null constraint gallery_report_kind check (kind in ('not_me', 'report', 'removal')),
    visitor blob not null,
    note text not null,
    created_at integer not null,
    constraint gallery_report_photo foreign key (album, photo) references photo (album, id) on delete cascade,
    constraint gallery_report_once unique (album, photo, kind, visitor)
) without rowid;

insert into gallery_report_new (id, album, photo, kind, visitor, note, created_at)
    select id, album, photo, kind, visitor, note, created_at from gallery_report;

drop table gallery_report;

alter table gallery_report_new rename to gallery_report;
