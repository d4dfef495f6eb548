-- Times are the server's, in microseconds since 1970. Names and owners are compared byte by byte.

-- How the tables are used: one row. A client that knows a version below `compatible` must stay away.
CREATE TABLE IF NOT EXISTS `lockkit_meta` (
  id TINYINT UNSIGNED NOT NULL PRIMARY KEY,
  strategy VARBINARY(32) NOT NULL,
  version INT UNSIGNED NOT NULL,
  compatible INT UNSIGNED NOT NULL
) ENGINE=InnoDB;

-- The notes beside mutexes and elections.
CREATE TABLE IF NOT EXISTS `lockkit_note` (
  kind VARBINARY(16) NOT NULL,
  name VARBINARY(255) NOT NULL,
  revision BIGINT UNSIGNED NOT NULL,
  content MEDIUMBLOB NOT NULL,
  PRIMARY KEY (kind, name)
) ENGINE=InnoDB;

-- strategy=optimistic: the last fencing token of each name, which each grant raises, and the holder of a mutex.
CREATE TABLE IF NOT EXISTS `lockkit_lock` (
  kind VARBINARY(16) NOT NULL,
  name VARBINARY(255) NOT NULL,
  owner VARBINARY(64) NOT NULL DEFAULT '',
  fence BIGINT UNSIGNED NOT NULL,
  expires_us BIGINT UNSIGNED NOT NULL DEFAULT 0,
  touched_us BIGINT UNSIGNED NOT NULL DEFAULT 0,
  acquired_us BIGINT UNSIGNED NOT NULL DEFAULT 0,
  wanted_us BIGINT UNSIGNED NOT NULL DEFAULT 0,
  wanted_by BIGINT UNSIGNED NOT NULL DEFAULT 0,
  permits INT UNSIGNED NOT NULL DEFAULT 0,
  label VARBINARY(255) NOT NULL DEFAULT '',
  PRIMARY KEY (kind, name)
) ENGINE=InnoDB;

-- strategy=optimistic: the holders of read/write locks and semaphores. `expires_us` is 0 in a candidate that is no
-- holder yet. A holder counts until its row is deleted.
CREATE TABLE IF NOT EXISTS `lockkit_holder` (
  kind VARBINARY(16) NOT NULL,
  name VARBINARY(255) NOT NULL,
  owner VARBINARY(64) NOT NULL,
  mode VARBINARY(1) NOT NULL,
  fence BIGINT UNSIGNED NOT NULL,
  permits INT UNSIGNED NOT NULL,
  expires_us BIGINT UNSIGNED NOT NULL,
  acquired_us BIGINT UNSIGNED NOT NULL,
  label VARBINARY(255) NOT NULL DEFAULT '',
  PRIMARY KEY (kind, name, owner)
) ENGINE=InnoDB;

-- strategy=pessimistic: the rows that are locked. Nothing is ever changed in them.
CREATE TABLE IF NOT EXISTS `lockkit_row` (
  kind VARBINARY(16) NOT NULL,
  name VARBINARY(255) NOT NULL,
  PRIMARY KEY (kind, name)
) ENGINE=InnoDB;

-- strategy=pessimistic: the last fencing token of each name, and who got it on which connection.
CREATE TABLE IF NOT EXISTS `lockkit_fence` (
  kind VARBINARY(16) NOT NULL,
  name VARBINARY(255) NOT NULL,
  fence BIGINT UNSIGNED NOT NULL,
  owner VARBINARY(64) NOT NULL DEFAULT '',
  acquired_us BIGINT UNSIGNED NOT NULL DEFAULT 0,
  open_us BIGINT UNSIGNED NOT NULL DEFAULT 0,
  server VARBINARY(255) NOT NULL DEFAULT '',
  started_us BIGINT UNSIGNED NOT NULL DEFAULT 0,
  thread BIGINT UNSIGNED NOT NULL DEFAULT 0,
  label VARBINARY(255) NOT NULL DEFAULT '',
  PRIMARY KEY (kind, name)
) ENGINE=InnoDB;
