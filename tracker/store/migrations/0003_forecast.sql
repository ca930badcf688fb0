-- Forecasts as they were made, by moment and digest of their inputs; body is plain JSON.

CREATE TABLE forecast (
    as_of_us  INTEGER NOT NULL,
    digest    TEXT NOT NULL,
    body      TEXT NOT NULL,
    PRIMARY KEY (as_of_us, digest)
) STRICT, WITHOUT ROWID;
