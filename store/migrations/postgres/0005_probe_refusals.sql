-- Selfies that cannot be searched with: `migrations/sqlite` says what the column means.

alter table probe add column refusal text;
