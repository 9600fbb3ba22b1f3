-- The publisher takes the albums that have waited longest: while many are processed at once, without reading all of them.
create index album_change_feed_since on album_change_feed (since);
