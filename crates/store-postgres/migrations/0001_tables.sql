-- The versions of the tables. Its insert is the first statement that fails on the tables of an unreleased version.
CREATE TABLE IF NOT EXISTS {migrations} (
    version    integer     NOT NULL,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT {prefix}migrations_pkey PRIMARY KEY (version)
);
INSERT INTO {migrations} (version, name) VALUES (1, 'tables') ON CONFLICT DO NOTHING;

-- A row for each run: its name, its facts, and what listings look for. A step leaves the row alone.
-- `seq` and `id` are of the record that changed the row last. The log must have that record.
CREATE TABLE IF NOT EXISTS {runs} (
    key           bigint GENERATED ALWAYS AS IDENTITY,
    seq           bigint   NOT NULL,
    first_seq     bigint   NOT NULL DEFAULT 0,
    wake_at       bigint,
    created       bigint   NOT NULL,
    parent_seq    bigint,
    id            uuid     NOT NULL,
    owner         uuid,
    graph         uuid     NOT NULL,
    input         uuid     NOT NULL,
    parent_id     uuid,
    status        "char"   NOT NULL,
    tenant        text COLLATE "C" NOT NULL,
    run           text COLLATE "C" NOT NULL,
    workflow      text COLLATE "C" NOT NULL,
    version       text COLLATE "C" NOT NULL,
    parent_tenant text COLLATE "C",
    parent_run    text COLLATE "C",
    user_name     text COLLATE "C",
    labels        jsonb,
    CONSTRAINT {prefix}runs_pkey PRIMARY KEY (key),
    -- It begins with the run's name, because many runs have the same tenant.
    CONSTRAINT {prefix}runs_name UNIQUE (run, tenant)
);

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

-- The log of each run. The last record is the run's head: the primary key lets one writer append after it.
-- Columns of eight bytes stand first, so that no byte is lost to padding.
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
-- Rows of no run, so that the table is never small. For a small table, the server plans a scan of the whole table, and uses this plan for some time
-- after the table has grown.
INSERT INTO {records} (run, seq, at, id, epoch, crc, format, kind, status, base, body)
    SELECT -1, -n, 0, '00000000-0000-0000-0000-000000000000', 0, 0, 0, 's', 'x', false, convert_to(repeat('filler ', 270), 'UTF8')
    FROM generate_series(1, 128) n
    ON CONFLICT DO NOTHING;

-- Until when, by this server's clock, each executor counts as alive.
CREATE TABLE IF NOT EXISTS {heartbeats} (
    executor uuid   NOT NULL,
    until    bigint NOT NULL,
    CONSTRAINT {prefix}heartbeats_pkey PRIMARY KEY (executor)
) WITH (fillfactor = 50);

-- Large values beside the records: a name for each, and what it holds in chunks. A value is never changed: another one of that name has another tag.
CREATE TABLE IF NOT EXISTS {objects} (
    path text COLLATE "C" NOT NULL,
    tag  uuid   NOT NULL,
    size bigint NOT NULL,
    at   bigint NOT NULL,
    CONSTRAINT {prefix}objects_pkey PRIMARY KEY (path),
    CONSTRAINT {prefix}objects_tag UNIQUE (tag)
);

CREATE TABLE IF NOT EXISTS {chunks} (
    tag   uuid   NOT NULL,
    start bigint NOT NULL,
    at    bigint NOT NULL,
    body  bytea  NOT NULL,
    CONSTRAINT {prefix}chunks_pkey PRIMARY KEY (tag, start)
);

-- As it is, so that a part of a chunk is read without the rest of it.
ALTER TABLE {chunks} ALTER COLUMN body SET STORAGE EXTERNAL;

-- For people: the same with names and times. The library does not read the views.
CREATE OR REPLACE VIEW {run_list} AS
SELECT r.tenant, r.run,
    CASE r.status WHEN 'p' THEN 'in_progress' WHEN 'c' THEN 'completed' WHEN 'f' THEN 'failed'
        WHEN 'i' THEN 'interrupted' WHEN 'w' THEN 'awaiting_input' WHEN 'x' THEN 'cancelled' END AS status,
    r.workflow, r.version, r.user_name, r.labels,
    CASE WHEN r.created BETWEEN -62135596800000 AND 253402300799999 THEN to_timestamp(r.created / 1000.0) END AS created,
    CASE WHEN d.at BETWEEN -62135596800000 AND 253402300799999 THEN to_timestamp(d.at / 1000.0) END AS updated,
    CASE WHEN r.wake_at BETWEEN -62135596800000 AND 253402300799999 THEN to_timestamp(r.wake_at / 1000.0) END AS wake_at,
    r.owner,
    coalesce(h.until > floor(extract(epoch FROM statement_timestamp()) * 1000), false) AS owner_alive,
    d.epoch::bigint & 4294967295 AS epoch,
    r.first_seq, d.seq, d.id, r.parent_tenant, r.parent_run, r.parent_seq, r.key
FROM {runs} r CROSS JOIN LATERAL (SELECT c.seq, c.id, c.at, c.epoch FROM {records} c WHERE c.run = r.key ORDER BY c.seq DESC LIMIT 1) d
    LEFT JOIN {heartbeats} h ON h.executor = r.owner;

CREATE OR REPLACE VIEW {record_list} AS
SELECT r.tenant, r.run, c.seq,
    CASE c.kind WHEN 's' THEN 'start' WHEN 'n' THEN 'node' WHEN 'a' THEN 'attempt' WHEN 't' THEN 'step'
        WHEN 'i' THEN 'intent' WHEN 'u' THEN 'status' WHEN 'g' THEN 'signal' WHEN 'c' THEN 'claim'
        WHEN 'r' THEN 'release' WHEN 'e' THEN 'edit' WHEN 'b' THEN 'base' END AS kind,
    CASE c.status WHEN 'p' THEN 'in_progress' WHEN 'c' THEN 'completed' WHEN 'f' THEN 'failed'
        WHEN 'i' THEN 'interrupted' WHEN 'w' THEN 'awaiting_input' WHEN 'x' THEN 'cancelled' END AS status,
    c.node, c.visit::bigint & 4294967295 AS visit,
    CASE WHEN c.at BETWEEN -62135596800000 AND 253402300799999 THEN to_timestamp(c.at / 1000.0) END AS at,
    c.base, octet_length(c.body) AS body_bytes, c.epoch::bigint & 4294967295 AS epoch, c.owner, c.id
FROM {records} c JOIN {runs} r ON r.key = c.run;

CREATE OR REPLACE VIEW {failed_today} AS
SELECT * FROM {run_list} WHERE status = 'failed' AND updated >= date_trunc('day', now());
