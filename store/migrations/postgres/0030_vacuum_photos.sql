-- On Postgres alone. A share of the rows is the wrong measure for the versions of photos that are dead: the queue has as many at its
-- head however many photos there are, and of ten million two hundredths are two hundred thousand. This locks out no reader and no
-- writer.
alter table photo set (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.002);
