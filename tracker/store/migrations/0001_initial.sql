-- The first schema. Times are integer microseconds since 1970 UTC; unknown is NULL, never 0.
-- Places: id = stream_id << 44 | offset << 4 | sub, so rows of one file lie together in file order, and
-- the same line read again has the same id. offset < 2^40 (1 TiB), stream_id < 2^19, sub < 16.

CREATE TABLE state (
    only_row            INTEGER PRIMARY KEY CHECK (only_row = 1),
    revision            INTEGER NOT NULL CHECK (revision >= 0),
    scheduler_revision  INTEGER NOT NULL CHECK (scheduler_revision >= 0)
) STRICT;

INSERT INTO state (only_row, revision, scheduler_revision) VALUES (1, 0, 0);

CREATE TABLE meta (
    key    TEXT PRIMARY KEY,
    value  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE stream (
    stream_id       INTEGER PRIMARY KEY CHECK (stream_id BETWEEN 1 AND 524287),
    source          INTEGER NOT NULL CHECK (source >= 0),
    kind            TEXT NOT NULL CHECK (kind IN ('log', 'document', 'scheduler', 'copy')),
    collector       TEXT,
    parser_version  INTEGER,
    evidence        TEXT NOT NULL,
    identity        TEXT NOT NULL,
    file_name       TEXT NOT NULL,
    written_us      INTEGER NOT NULL,
    seen_us         INTEGER NOT NULL,
    first_size      INTEGER NOT NULL DEFAULT 0 CHECK (first_size >= 0),
    position        TEXT NOT NULL,
    offset          INTEGER NOT NULL CHECK (offset >= 0),
    context         TEXT NOT NULL,
    lines           INTEGER NOT NULL DEFAULT 0 CHECK (lines >= 0),
    readings        INTEGER NOT NULL DEFAULT 0 CHECK (readings >= 0),
    events          INTEGER NOT NULL DEFAULT 0 CHECK (events >= 0),
    rejects         INTEGER NOT NULL DEFAULT 0 CHECK (rejects >= 0),
    skipped         INTEGER NOT NULL DEFAULT 0 CHECK (skipped >= 0),
    revision        INTEGER NOT NULL CHECK (revision >= 0),
    reset_revision  INTEGER NOT NULL CHECK (reset_revision >= 0),
    CHECK ((collector IS NULL) = (parser_version IS NULL))
) STRICT;

CREATE TABLE segment (
    stream_id  INTEGER NOT NULL REFERENCES stream (stream_id) ON DELETE CASCADE,
    ordinal    INTEGER NOT NULL CHECK (ordinal >= 0),
    revision   INTEGER NOT NULL CHECK (revision >= 0),
    body       TEXT NOT NULL,
    PRIMARY KEY (stream_id, ordinal)
) STRICT, WITHOUT ROWID;

CREATE TABLE reading (
    id                   INTEGER PRIMARY KEY,
    at_us                INTEGER,
    step                 INTEGER NOT NULL CHECK (step >= 0),
    step_time_us         INTEGER CHECK (step_time_us > 0),
    samples              INTEGER CHECK (samples >= 0),
    tokens               INTEGER CHECK (tokens >= 0),
    batch                INTEGER CHECK (batch >= 0),
    skipped              INTEGER NOT NULL CHECK (skipped >= 0),
    flags                INTEGER NOT NULL,
    reported_flop_per_s  REAL,
    tokens_per_step      INTEGER CHECK (tokens_per_step >= 0)
) STRICT;

CREATE TABLE event (
    id           INTEGER PRIMARY KEY,
    kind         TEXT NOT NULL,
    at_us        INTEGER,
    step         INTEGER,
    duration_us  INTEGER,
    data         TEXT NOT NULL,
    text         TEXT NOT NULL
) STRICT;

CREATE TABLE reject (
    id      INTEGER PRIMARY KEY,
    reason  TEXT NOT NULL,
    line    BLOB NOT NULL
) STRICT;

CREATE TABLE reject_count (
    stream_id  INTEGER NOT NULL REFERENCES stream (stream_id) ON DELETE CASCADE,
    reason     TEXT NOT NULL,
    lines      INTEGER NOT NULL CHECK (lines > 0),
    PRIMARY KEY (stream_id, reason)
) STRICT, WITHOUT ROWID;

CREATE TABLE scheduler_row (
    job_id     TEXT NOT NULL,
    start_us   INTEGER NOT NULL,
    stream_id  INTEGER NOT NULL REFERENCES stream (stream_id) ON DELETE CASCADE,
    end_us     INTEGER,
    name       TEXT NOT NULL,
    state      TEXT NOT NULL,
    submit_us  INTEGER,
    gpus       INTEGER,
    nodes      INTEGER,
    exit_code  TEXT NOT NULL,
    reason     TEXT NOT NULL,
    comment    TEXT NOT NULL,
    data       TEXT NOT NULL,
    PRIMARY KEY (job_id, start_us, stream_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE fold_mark (
    key       TEXT NOT NULL,
    position  INTEGER NOT NULL,
    digest    TEXT NOT NULL,
    step      INTEGER,
    at_us     INTEGER,
    body      BLOB NOT NULL,
    PRIMARY KEY (key, position)
) STRICT, WITHOUT ROWID;
