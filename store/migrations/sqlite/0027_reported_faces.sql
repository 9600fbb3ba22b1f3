-- Which faces of a photo a visitor asks to be removed of: a JSON list of boxes, no vector. Null in other reports.
alter table gallery_report add column faces text;
