-- The head of each run in a table of its own. It moves with each append, so its row is narrow and has one index, where the row of a
-- run has eleven: an append moves the head, and the run's row only where what listings look for changes.
-- The key begins with the run's name, because tenants are the same for many runs.
CREATE TABLE IF NOT EXISTS {heads} (
    key       bigint   NOT NULL,
    seq       bigint   NOT NULL,
    first_seq bigint   NOT NULL DEFAULT 0,
    at        bigint   NOT NULL,
    wake_at   bigint,
    id        uuid     NOT NULL,
    owner     uuid,
    epoch     integer  NOT NULL,
    format    smallint NOT NULL,
    kind      "char"   NOT NULL,
    status    "char"   NOT NULL,
    tenant    text COLLATE "C" NOT NULL,
    run       text COLLATE "C" NOT NULL,
    CONSTRAINT {prefix}heads_pkey PRIMARY KEY (run, tenant)
) WITH (fillfactor = 60);

-- Moves the heads of runs that are there. No process of the version before appends meanwhile, and afterwards each of its calls is
-- refused, because the columns are gone.
DO $do$
BEGIN
    IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = '{runs}'::regclass AND attname = 'seq' AND NOT attisdropped) THEN
        LOCK TABLE {runs} IN ACCESS EXCLUSIVE MODE;
        INSERT INTO {heads} (key, seq, first_seq, at, wake_at, id, owner, epoch, format, kind, status, tenant, run)
            SELECT key, seq, first_seq, updated, wake_at, id, owner, epoch, format, kind, status, tenant, run FROM {runs};
        DROP VIEW IF EXISTS {failed_today}, {record_list}, {run_list};
        ALTER TABLE {runs} DROP COLUMN seq, DROP COLUMN first_seq, DROP COLUMN updated, DROP COLUMN id, DROP COLUMN epoch,
            DROP COLUMN format, DROP COLUMN kind;
        -- Its rows are rarely updated now, and never within their page, since an index has each column that is.
        ALTER TABLE {runs} RESET (fillfactor);
        ANALYZE {heads};
    END IF;
END
$do$;

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
    d.first_seq, d.seq, d.id, r.parent_tenant, r.parent_run, r.parent_seq, r.key
FROM {runs} r JOIN {heads} d ON d.run = r.run AND d.tenant = r.tenant LEFT JOIN {heartbeats} h ON h.executor = r.owner;

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

INSERT INTO {migrations} (version, usable_by, name) VALUES (2, 2, 'heads') ON CONFLICT DO NOTHING;
