-- Selfies that cannot be searched with: they are not examined again.

-- Why no embedding can be made of the bytes; null while nobody has examined them, and when there is an embedding.
alter table probe add column refusal text;
