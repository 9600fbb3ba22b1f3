-- The publisher takes the albums that have waited longest: while many are processed at once, without reading all of them.
-- An update that leaves `since` as it is stays off this index too. The table is small, so building takes no time.
create index album_change_feed_since on album_change_feed (since);
