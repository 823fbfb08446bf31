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

INSERT INTO {migrations} (version, usable_by, name) VALUES (3, 2, 'objects') ON CONFLICT DO NOTHING;
