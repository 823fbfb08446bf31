-- The head of each run: what a listing shows and what an append compares.
-- The free space in each page lets a step update its run's row in place, without touching any index.
CREATE TABLE IF NOT EXISTS {runs} (
    key           bigint GENERATED ALWAYS AS IDENTITY,
    seq           bigint   NOT NULL,
    first_seq     bigint   NOT NULL DEFAULT 0,
    updated       bigint   NOT NULL,
    wake_at       bigint,
    created       bigint   NOT NULL,
    parent_seq    bigint,
    id            uuid     NOT NULL,
    owner         uuid,
    epoch         integer  NOT NULL,
    format        smallint NOT NULL,
    kind          "char"   NOT NULL,
    status        "char"   NOT NULL,
    graph         uuid     NOT NULL,
    input         uuid     NOT NULL,
    parent_id     uuid,
    tenant        text COLLATE "C" NOT NULL,
    run           text COLLATE "C" NOT NULL,
    workflow      text COLLATE "C" NOT NULL,
    version       text COLLATE "C" NOT NULL,
    parent_tenant text COLLATE "C",
    parent_run    text COLLATE "C",
    user_name     text COLLATE "C",
    labels        jsonb,
    CONSTRAINT {prefix}runs_pkey PRIMARY KEY (key),
    CONSTRAINT {prefix}runs_name UNIQUE (tenant, run)
) WITH (fillfactor = 60);

CREATE INDEX IF NOT EXISTS {prefix}runs_by_created ON {runs} (created, tenant, run);
CREATE INDEX IF NOT EXISTS {prefix}runs_by_tenant ON {runs} (tenant, created, run);
CREATE INDEX IF NOT EXISTS {prefix}runs_by_workflow ON {runs} (workflow, created, tenant, run);
CREATE INDEX IF NOT EXISTS {prefix}runs_by_status ON {runs} (status, created, tenant, run);
CREATE INDEX IF NOT EXISTS {prefix}runs_by_parent ON {runs} (parent_run, parent_tenant, created, tenant, run)
    WHERE parent_run IS NOT NULL;
CREATE INDEX IF NOT EXISTS {prefix}runs_by_owner ON {runs} (owner, created, tenant, run)
    WHERE owner IS NOT NULL;
CREATE INDEX IF NOT EXISTS {prefix}runs_by_label ON {runs} USING gin (labels jsonb_path_ops)
    WHERE labels IS NOT NULL;
-- Runs in progress that nothing but an executor can move, by executor: its death makes them orphans.
CREATE INDEX IF NOT EXISTS {prefix}runs_to_adopt ON {runs} (owner, created, tenant, run)
    WHERE status = 'p' AND wake_at IS NULL AND owner IS NOT NULL;
-- The same without an executor: apart, so that the server knows from the size of the index that they are few.
CREATE INDEX IF NOT EXISTS {prefix}runs_of_nobody ON {runs} (created, tenant, run)
    WHERE status = 'p' AND wake_at IS NULL AND owner IS NULL;
-- Runs that are to be woken, by time.
CREATE INDEX IF NOT EXISTS {prefix}runs_to_wake ON {runs} (wake_at)
    WHERE wake_at IS NOT NULL;

-- The log of each run. Columns of eight bytes stand first, so that no byte is lost to padding.
CREATE TABLE IF NOT EXISTS {records} (
    run     bigint   NOT NULL,
    seq     bigint   NOT NULL,
    at      bigint   NOT NULL,
    wake_at bigint,
    id      uuid     NOT NULL,
    prev    uuid,
    owner   uuid,
    epoch   integer  NOT NULL,
    visit   integer,
    crc     integer  NOT NULL,
    format  smallint NOT NULL,
    kind    "char"   NOT NULL,
    status  "char"   NOT NULL,
    base    boolean  NOT NULL,
    node    text COLLATE "C",
    body    bytea    NOT NULL,
    CONSTRAINT {prefix}records_pkey PRIMARY KEY (run, seq)
);
-- Where a load begins: without it, the server may read a whole run to find its newest base.
CREATE INDEX IF NOT EXISTS {prefix}records_bases ON {records} (run, seq) WHERE base;
-- Bodies too long for a page are kept out of line and not compressed: the library does that itself, if it is to be done.
ALTER TABLE {records} ALTER COLUMN body SET STORAGE EXTERNAL;

-- Until when, by this server's clock, each executor counts as alive.
CREATE TABLE IF NOT EXISTS {heartbeats} (
    executor uuid   NOT NULL,
    until    bigint NOT NULL,
    CONSTRAINT {prefix}heartbeats_pkey PRIMARY KEY (executor)
) WITH (fillfactor = 50);

CREATE TABLE IF NOT EXISTS {migrations} (
    version    integer     NOT NULL,
    -- The oldest version of the library's tables that may go on using these.
    usable_by  integer     NOT NULL,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT {prefix}migrations_pkey PRIMARY KEY (version)
);
INSERT INTO {migrations} (version, usable_by, name) VALUES (1, 1, 'runs_and_records') ON CONFLICT DO NOTHING;
