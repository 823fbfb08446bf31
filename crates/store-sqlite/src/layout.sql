-- The version of the layout.
CREATE TABLE IF NOT EXISTS ferrata_layout (version INTEGER NOT NULL) STRICT;
INSERT INTO ferrata_layout SELECT 1 WHERE NOT EXISTS (SELECT * FROM ferrata_layout);

-- One row for each run: what listings look for. `sum` is of its name, `first_seq` and `facts`.
CREATE TABLE IF NOT EXISTS ferrata_runs (
    key       INTEGER PRIMARY KEY,
    tenant    TEXT    NOT NULL,
    run       TEXT    NOT NULL,
    first_seq INTEGER NOT NULL,
    status    TEXT    NOT NULL,
    -- Empty if it has none, so that a run without an owner is one of an owner who never lives.
    owner     TEXT    NOT NULL,
    wake_at   INTEGER,
    created   INTEGER NOT NULL,
    workflow  TEXT    NOT NULL,
    user_name TEXT,
    parent    TEXT,
    facts     TEXT    NOT NULL,
    sum       INTEGER NOT NULL,
    UNIQUE (tenant, run)
) STRICT;
CREATE INDEX IF NOT EXISTS ferrata_runs_by_created ON ferrata_runs (created, tenant, run);
CREATE INDEX IF NOT EXISTS ferrata_runs_by_tenant ON ferrata_runs (tenant, created, run);
CREATE INDEX IF NOT EXISTS ferrata_runs_by_workflow ON ferrata_runs (workflow, created, tenant, run);
CREATE INDEX IF NOT EXISTS ferrata_runs_by_status ON ferrata_runs (status, created, tenant, run);
CREATE INDEX IF NOT EXISTS ferrata_runs_by_parent ON ferrata_runs (parent, created, tenant, run)
    WHERE parent IS NOT NULL;
CREATE INDEX IF NOT EXISTS ferrata_runs_by_owner ON ferrata_runs (owner, created, tenant, run)
    WHERE owner <> '';
-- Families: the runs that a run has started, and all below a first one. Facts that a fault has damaged must not keep the file from being opened.
CREATE INDEX IF NOT EXISTS ferrata_runs_by_parent_run
    ON ferrata_runs (CASE WHEN json_valid(facts) THEN facts ->> '$.labels."ferrata.parent"' END, tenant, created, run)
    WHERE CASE WHEN json_valid(facts) THEN facts ->> '$.labels."ferrata.parent"' END IS NOT NULL;
CREATE INDEX IF NOT EXISTS ferrata_runs_by_root_run
    ON ferrata_runs (CASE WHEN json_valid(facts) THEN facts ->> '$.labels."ferrata.root"' END, tenant, created, run)
    WHERE CASE WHEN json_valid(facts) THEN facts ->> '$.labels."ferrata.root"' END IS NOT NULL;
-- Runs in progress that nothing but an executor can move, by executor: its death makes them orphans.
CREATE INDEX IF NOT EXISTS ferrata_runs_to_adopt ON ferrata_runs (owner, created, tenant, run)
    WHERE status = 'in_progress' AND wake_at IS NULL;
CREATE INDEX IF NOT EXISTS ferrata_runs_by_wake ON ferrata_runs (wake_at)
    WHERE wake_at IS NOT NULL;

-- The log of each run, in the order of its records. `base` stands before what a search for the newest base need not read.
CREATE TABLE IF NOT EXISTS ferrata_records (
    run    INTEGER NOT NULL,
    seq    INTEGER NOT NULL,
    base   INTEGER NOT NULL,
    header TEXT    NOT NULL,
    sum    INTEGER NOT NULL,
    body   BLOB    NOT NULL,
    PRIMARY KEY (run, seq)
) STRICT, WITHOUT ROWID;

-- Where each run is found by its name, and where its log ends: apart from its row and from its records, so that damage to one of the three
-- contradicts the others. Narrow, so that a step adds one small page to that of its record.
CREATE TABLE IF NOT EXISTS ferrata_heads (
    tenant TEXT    NOT NULL,
    run    TEXT    NOT NULL,
    key    INTEGER NOT NULL,
    seq    INTEGER NOT NULL,
    PRIMARY KEY (tenant, run)
) STRICT, WITHOUT ROWID;

-- Whatever appends a record moves the head with it, in the same statement.
CREATE TRIGGER IF NOT EXISTS ferrata_records_move_head AFTER INSERT ON ferrata_records
BEGIN
    UPDATE ferrata_heads SET seq = NEW.seq
        WHERE (tenant, run) = (SELECT tenant, run FROM ferrata_runs WHERE key = NEW.run) AND seq < NEW.seq;
END;

-- Until when, by the clock of the machine, each executor counts as alive. `twin` is `until` with the other sign: where it is not, the row is
-- damaged, and the executor does not count as alive.
CREATE TABLE IF NOT EXISTS ferrata_heartbeats (
    executor TEXT    PRIMARY KEY,
    until    INTEGER NOT NULL,
    twin     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- For people: the same with times and without what only the library needs. The library does not read the views.
CREATE VIEW IF NOT EXISTS ferrata_run_list AS
SELECT r.tenant, r.run, r.status, r.workflow, r.facts ->> '$.version' AS version, r.user_name,
    r.facts -> '$.labels' AS labels,
    strftime('%Y-%m-%dT%H:%M:%fZ', r.created / 1000.0, 'unixepoch') AS created,
    strftime('%Y-%m-%dT%H:%M:%fZ', (c.header ->> '$.at') / 1000.0, 'unixepoch') AS updated,
    strftime('%Y-%m-%dT%H:%M:%fZ', r.wake_at / 1000.0, 'unixepoch') AS wake_at,
    nullif(r.owner, '') AS owner,
    coalesce((SELECT h.until > unixepoch('subsec') * 1000 FROM ferrata_heartbeats h WHERE h.executor = r.owner), 0)
        AS owner_alive,
    c.header ->> '$.epoch' AS epoch, r.first_seq, d.seq, r.parent, r.key
FROM ferrata_runs r LEFT JOIN ferrata_heads d ON d.tenant = r.tenant AND d.run = r.run
    LEFT JOIN ferrata_records c ON c.run = d.key AND c.seq = d.seq;

CREATE VIEW IF NOT EXISTS ferrata_record_list AS
SELECT r.tenant, r.run, c.seq, c.header ->> '$.kind' AS kind, c.header ->> '$.status' AS status,
    c.header ->> '$.node' AS node, c.header ->> '$.visit' AS visit,
    strftime('%Y-%m-%dT%H:%M:%fZ', (c.header ->> '$.at') / 1000.0, 'unixepoch') AS at,
    c.base, length(c.body) AS body_bytes, c.header ->> '$.epoch' AS epoch, c.header ->> '$.owner' AS owner,
    c.header ->> '$.id' AS id
FROM ferrata_records c JOIN ferrata_runs r ON r.key = c.run;

CREATE VIEW IF NOT EXISTS ferrata_failed_today AS
SELECT * FROM ferrata_run_list WHERE status = 'failed' AND updated >= strftime('%Y-%m-%d', 'now');
