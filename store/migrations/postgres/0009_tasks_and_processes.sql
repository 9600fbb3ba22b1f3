-- What the processes of one database know of each other: `migrations/sqlite` says what the columns mean.

create table task_lease (
    name text not null constraint task_lease_key primary key,
    holder uuid not null,
    held_until bigint not null
);

create table process (
    id uuid not null constraint process_key primary key,
    role text not null,
    host text not null,
    version text not null,
    started_at bigint not null,
    seen_at bigint not null,
    report text not null
)
-- A few rows, each written every two seconds: without room in their page, every version would be an entry of the index.
with (fillfactor = 25);
