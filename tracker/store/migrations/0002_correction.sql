-- What people say about interruptions, beside the facts: appended, never altered. Of several for one attempt
-- the last one counts. `attempt` names it by content, so that reading the logs again does not lose it.

CREATE TABLE correction (
    id       INTEGER PRIMARY KEY,
    attempt  TEXT NOT NULL,
    at_us    INTEGER NOT NULL,
    made_us  INTEGER NOT NULL,
    made_by  TEXT NOT NULL CHECK (made_by <> ''),
    note     TEXT NOT NULL CHECK (note <> ''),
    cause    TEXT,
    kind     TEXT CHECK (kind IN ('planned', 'unexpected')),
    manual   INTEGER CHECK (manual IN (0, 1))
) STRICT;
