-- Webhooks: URLs of partners that are told events, and every delivery of an event to one of them.

create table webhook (
    id blob not null constraint webhook_key primary key,
    organization blob not null constraint webhook_organization references organization (id),
    mode text not null constraint webhook_mode check (mode in ('test', 'live')),
    created_by blob not null,
    url text not null,
    label text not null,
    -- A JSON list of event types.
    types text not null,
    -- Only events of this album; no reference: its last event is its deletion.
    album blob,
    -- 1 or 0.
    enabled integer not null,
    -- Why the service disabled it; null otherwise.
    disabled_reason text,
    -- Sealed with a key that is not in the database: see `src/sealing.rs`.
    secret blob not null,
    -- The secret before the last rotation, which signs too until then.
    old_secret blob,
    old_secret_until integer not null default 0,
    created_at integer not null,
    updated_at integer not null,
    last_success_at integer,
    last_failure_at integer,
    -- Since the last success: the first failed attempt, and how many deliveries had failed attempts.
    failing_since integer,
    failing_deliveries integer not null default 0
) without rowid;

create index webhook_by_owner on webhook (organization, mode, id);

create table webhook_delivery (
    id blob not null constraint webhook_delivery_key primary key,
    webhook blob not null constraint webhook_delivery_webhook references webhook (id) on delete cascade,
    -- `event.sequence`; null for a test. No reference: events are deleted by their age, and these with them.
    event integer,
    event_id blob not null,
    type text not null,
    state text not null constraint webhook_delivery_state
        check (state in ('pending', 'delivered', 'failed', 'cancelled')),
    -- Attempts that were begun, counted before they are made. The number of the last one fences its outcome.
    attempts integer not null default 0,
    -- How many there were when it was last made pending by a caller: the schedule counts from there.
    first_attempt integer not null default 0,
    -- When the next attempt is due; while one is being made, when it counts as lost.
    next_at integer not null,
    last_status integer,
    last_error text,
    created_at integer not null,
    delivered_at integer
) without rowid;

create index webhook_delivery_due on webhook_delivery (webhook, next_at) where state = 'pending';
create index webhook_delivery_by_webhook on webhook_delivery (webhook, id);
create index webhook_delivery_by_event on webhook_delivery (event);

create table webhook_attempt (
    delivery blob not null constraint webhook_attempt_delivery
        references webhook_delivery (id) on delete cascade,
    number integer not null,
    at integer not null,
    duration_ms integer not null,
    -- Of the response, if there was one.
    status integer,
    error text,
    -- The beginning of the response.
    answer text not null,
    constraint webhook_attempt_key primary key (delivery, number)
) without rowid;
