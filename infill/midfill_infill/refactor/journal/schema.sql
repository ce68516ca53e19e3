CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE files (
    id INTEGER PRIMARY KEY,
    path BLOB NOT NULL UNIQUE,
    language TEXT,
    planned_hash BLOB NOT NULL,
    known_hash BLOB NOT NULL
);
CREATE TABLE holes (
    id INTEGER PRIMARY KEY,
    file INTEGER NOT NULL,
    start_byte INTEGER NOT NULL,
    end_byte INTEGER NOT NULL,
    name TEXT,
    kind TEXT NOT NULL,
    spec TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'planned',
    reason TEXT NOT NULL DEFAULT '',
    at INTEGER NOT NULL,
    length INTEGER NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE fills (
    hole INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    seed INTEGER NOT NULL,
    old BLOB NOT NULL,
    new BLOB NOT NULL,
    new_errors INTEGER NOT NULL,
    certainty REAL,
    is_suggestion INTEGER NOT NULL,
    ms REAL NOT NULL,
    imports TEXT NOT NULL DEFAULT '[]',
    PRIMARY KEY (hole, attempt)
) WITHOUT ROWID;
-- Whole files, compressed: the planned bytes of files with fills, and the bytes before and after each write.
CREATE TABLE snapshots (hash BLOB PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
-- States: reserved -> intent -> done. A canceled write is dropped, and retracted while its staged file is still there.
-- `recover` looks at the files of a write that is neither done nor dropped.
CREATE TABLE writes (
    id INTEGER PRIMARY KEY,
    file INTEGER NOT NULL,
    temporary TEXT NOT NULL,
    old_hash BLOB NOT NULL,
    new_hash BLOB NOT NULL,
    effect TEXT NOT NULL,
    state TEXT NOT NULL
);
CREATE INDEX open_writes ON writes (id) WHERE state IN ('reserved', 'intent', 'retracted');
CREATE INDEX writes_by_file ON writes (file);
CREATE INDEX holes_by_file ON holes (file);
CREATE INDEX holes_by_state ON holes (state, file);
