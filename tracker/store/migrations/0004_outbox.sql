-- What is to be made and what is to be sent, kept until it is done. A report's row is its claim: as_of_us is
-- fixed when it is begun. A letter is sent to each recipient on its own; a day is an event's own name for events.

CREATE TABLE report (
    kind           TEXT NOT NULL,
    day            TEXT NOT NULL,
    zone           TEXT NOT NULL,
    as_of_us       INTEGER NOT NULL,
    state          TEXT NOT NULL CHECK (state IN ('making', 'made', 'failed')),
    attempts       INTEGER NOT NULL CHECK (attempts > 0),
    begun_us       INTEGER NOT NULL,
    not_before_us  INTEGER NOT NULL,
    made_us        INTEGER,
    problem        TEXT NOT NULL DEFAULT '',
    files          TEXT NOT NULL DEFAULT '[]',
    PRIMARY KEY (kind, day, zone),
    CHECK ((state = 'made') = (made_us IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE letter (
    message_id  TEXT PRIMARY KEY,
    channel     TEXT NOT NULL,
    subject     TEXT NOT NULL,
    made_us     INTEGER NOT NULL,
    body        BLOB
) STRICT;

CREATE TABLE outbox (
    kind           TEXT NOT NULL,
    day            TEXT NOT NULL,
    recipient      TEXT NOT NULL,
    channel        TEXT NOT NULL,
    message_id     TEXT NOT NULL REFERENCES letter (message_id),
    state          TEXT NOT NULL CHECK (state IN ('queued', 'sending', 'sent', 'dead')),
    attempts       INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    queued_us      INTEGER NOT NULL,
    not_before_us  INTEGER NOT NULL,
    tried_us       INTEGER,
    sent_us        INTEGER,
    reason         TEXT NOT NULL DEFAULT '',
    error          TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (kind, day, recipient),
    CHECK ((state = 'sent') = (sent_us IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX outbox_waiting ON outbox (channel, not_before_us) WHERE state IN ('queued', 'sending');

CREATE TABLE outbox_failure (
    channel  TEXT NOT NULL,
    reason   TEXT NOT NULL,
    tries    INTEGER NOT NULL CHECK (tries > 0),
    PRIMARY KEY (channel, reason)
) STRICT, WITHOUT ROWID;
