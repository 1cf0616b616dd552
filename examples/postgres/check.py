#!/usr/bin/env python3
"""Lets the server recover what a power cut left, without a port, and counts what was promised.

Before the first mark nobody had been told anything, but the cluster was made before the recording: there
it must start.

plimsoll disk explore trace/ --check 'examples/postgres/check.py {dir}'
"""
import glob
import os
import re
import subprocess
import sys

os.environ["PATH"] += "".join(f":{path}" for path in glob.glob("/usr/lib/postgresql/*/bin"))
promised = int(os.environ.get("PLIMSOLL_LAST_MARK") or 0)
cluster = os.path.join(sys.argv[1], "cluster")
# It names a process of before the cut; after a real one nobody else has its number so soon.
if os.path.exists(os.path.join(cluster, "postmaster.pid")):
    os.remove(os.path.join(cluster, "postmaster.pid"))
# All rows through the table, and through its index.
queries = """\
SELECT count(*) AS tables FROM pg_tables WHERE tablename = 'payments'
SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off
SELECT string_agg(number::text, ' ' ORDER BY number) AS rows FROM payments
SET enable_seqscan = off; SET enable_indexonlyscan = on
SELECT count(*) AS indexed FROM (SELECT number FROM payments ORDER BY number) AS all_rows
"""
command = ["postgres", "--single", "-D", cluster, "postgres"]
server = subprocess.run(command, user="postgres", cwd="/", input=queries, text=True,
                        capture_output=True)
tables = re.search(r'tables = "([01])"', server.stdout)
found = re.search(r'rows = "([0-9 ]*)"', server.stdout)
indexed = re.search(r'indexed = "([0-9]+)"', server.stdout)
is_made = tables is not None and tables.group(1) == "1"
if server.returncode != 0 or tables is None or (is_made and indexed is None):
    trouble = re.findall("(?:ERROR|FATAL|PANIC): .*", server.stderr)
    print(f"it does not recover: {'; '.join(trouble[:2])}")
    sys.exit(3)
rows = found.group(1).split() if found else []
if rows != [str(number) for number in range(1, len(rows) + 1)]:
    print(f"wrong: {len(rows)} rows are not those from 1 to {len(rows)}")
    sys.exit(1)
if is_made and int(indexed.group(1)) != len(rows):
    print(f"wrong: {len(rows)} rows, and {indexed.group(1)} of them in the index")
    sys.exit(1)
if len(rows) < promised:
    print(f"{promised} rows were promised, {len(rows)} are there")
    sys.exit(1)
if not is_made:
    print("it starts, and nobody had been told of anything")
