-- Visitors ask to be removed: the organizer decides.
alter table gallery_report drop constraint gallery_report_kind;

alter table gallery_report add constraint gallery_report_kind check (kind in ('not_me', 'report', 'removal'));
