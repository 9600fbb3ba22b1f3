-- Webhooks: `migrations/sqlite` says what the columns mean.

create table webhook (
    id uuid not null constraint webhook_key primary key,
    organization uuid not null constraint webhook_organization references organization (id),
    mode text not null constraint webhook_mode check (mode in ('test', 'live')),
    created_by uuid not null,
    url text not null,
    label text not null,
    types text not null,
    album uuid,
    enabled bigint not null,
    disabled_reason text,
    secret bytea not null,
    old_secret bytea,
    old_secret_until bigint not null default 0,
    created_at bigint not null,
    updated_at bigint not null,
    last_success_at bigint,
    last_failure_at bigint,
    failing_since bigint,
    failing_deliveries bigint not null default 0
);

create index webhook_by_owner on webhook (organization, mode, id);

create table webhook_delivery (
    id uuid not null constraint webhook_delivery_key primary key,
    webhook uuid not null constraint webhook_delivery_webhook references webhook (id) on delete cascade,
    event bigint,
    event_id uuid not null,
    type text not null,
    state text not null constraint webhook_delivery_state
        check (state in ('pending', 'delivered', 'failed', 'cancelled')),
    attempts bigint not null default 0,
    first_attempt bigint not null default 0,
    next_at bigint not null,
    last_status bigint,
    last_error text,
    created_at bigint not null,
    delivered_at bigint
);

create index webhook_delivery_due on webhook_delivery (webhook, next_at) where state = 'pending';
create index webhook_delivery_by_webhook on webhook_delivery (webhook, id);
create index webhook_delivery_by_event on webhook_delivery (event);

create table webhook_attempt (
    delivery uuid not null constraint webhook_attempt_delivery
        references webhook_delivery (id) on delete cascade,
    number bigint not null,
    at bigint not null,
    duration_ms bigint not null,
    status bigint,
    error text,
    answer text not null,
    constraint webhook_attempt_key primary key (delivery, number)
);
