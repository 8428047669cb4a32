#!/bin/bash
# sqlite.sh MOUNT SCRATCH: rollback journal and WAL, two writers, a writer killed in a transaction, integrity each time
set -eEuo pipefail
trap 'echo "$0: line $LINENO: $BASH_COMMAND" >&2' ERR
mount=$1 scratch=$2
fill="CREATE TABLE t(id INTEGER PRIMARY KEY, k TEXT, v BLOB); CREATE INDEX i ON t(k);
WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<4000)
INSERT INTO t SELECT x, printf('key%08d',(x*7919)%20011), substr(hex(x*1234567),1,8)||zeroblob(x%200) FROM c;
UPDATE t SET v=v||'u' WHERE id%3=0; DELETE FROM t WHERE id%7=0;"
sound() { [ "$(sqlite3 -cmd '.timeout 20000' "$1" 'PRAGMA integrity_check;')" = ok ]; }
dump() { sqlite3 "$1" .dump | sha256sum; }

sqlite3 "$scratch/reference.db" "$fill"
for mode in DELETE TRUNCATE WAL; do
    database=$mount/$mode.db
    sqlite3 "$database" "PRAGMA journal_mode=$mode; PRAGMA synchronous=FULL; $fill" >/dev/null
    sound "$database"
    [ "$(dump "$database")" = "$(dump "$scratch/reference.db")" ]
    sqlite3 "$database" 'VACUUM;'
    sound "$database"

    sqlite3 "$database" 'CREATE TABLE m(p, i);'
    for writer in 1 2; do
        for i in $(seq 25); do echo "BEGIN IMMEDIATE; INSERT INTO m VALUES($writer,$i); COMMIT;"; done |
            sqlite3 -batch -bail -cmd '.timeout 20000' "$database" &
    done
    wait
    [ "$(sqlite3 "$database" 'SELECT count(*) FROM m')" = 50 ]
    sound "$database"

    : >"$scratch/log"
    # Rows come in pairs of tables. The writer reports when it has committed a few times, and is killed halfway.
    python3 -c '
import os, sqlite3, sys
c = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=20)
c.execute("PRAGMA synchronous=FULL"); c.execute("PRAGMA cache_size=-64")
c.execute("CREATE TABLE a(b)"); c.execute("CREATE TABLE n(c)")
while True:
    c.execute("BEGIN IMMEDIATE")
    c.executemany("INSERT INTO a VALUES(?)", ((os.urandom(700),) for _ in range(100)))
    c.execute("INSERT INTO n VALUES(100)"); c.execute("COMMIT")
    print("committed", flush=True)' "$database" >>"$scratch/log" &
    writer=$!
    for _ in $(seq 6000); do [ "$(wc -l <"$scratch/log")" -lt 5 ] || break; sleep 0.01; done
    [ "$(wc -l <"$scratch/log")" -ge 5 ]
    kill -9 $writer
    wait $writer 2>/dev/null || true
    sound "$database"
    [ "$(sqlite3 "$database" 'SELECT (SELECT count(*) FROM a) = (SELECT sum(c) FROM n)')" = 1 ]
done
