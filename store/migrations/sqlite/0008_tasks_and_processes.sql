-- What the processes of one database know of each other.

-- Tasks that one process at a time does. Every transaction of a task updates this row first: its lock is the fence that
-- keeps a holder whose lease expired from writing beside its successor.
create table task_lease (
    name text not null constraint task_lease_key primary key,
    -- The process.
    holder blob not null,
    -- By the database's clock.
    held_until integer not null
) without rowid;

-- Running processes. Each writes its own row every two seconds; whoever finds a row of a minute ago deletes it.
create table process (
    id blob not null constraint process_key primary key,
    -- 'all', 'serve' or 'work'.
    role text not null,
    host text not null,
    version text not null,
    started_at integer not null,
    -- When it last wrote this row, by the database's clock.
    seen_at integer not null,
    -- JSON: what its pipeline does.
    report text not null
) without rowid;
