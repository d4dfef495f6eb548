BEGIN IMMEDIATE;

CREATE TABLE IF NOT EXISTS lockkit_store (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    version INTEGER NOT NULL,
    last_token INTEGER NOT NULL
) STRICT;

INSERT OR IGNORE INTO lockkit_store VALUES (1, 1, 0);

CREATE TABLE IF NOT EXISTS lockkit_locks (
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    owner TEXT NOT NULL,
    token INTEGER NOT NULL,
    label TEXT,
    granted_us INTEGER NOT NULL,
    expires_us INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS lockkit_locks_by_end ON lockkit_locks (expires_us);

COMMIT;
