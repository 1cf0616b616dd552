#!/usr/bin/env python3
"""Makes a cluster in {dir}, which belongs to the user postgres: the server refuses to be root.
"""
import glob
import os
import shutil
import subprocess
import sys

os.environ["PATH"] += "".join(f":{path}" for path in glob.glob("/usr/lib/postgresql/*/bin"))
cluster = os.path.join(sys.argv[1], "cluster")
os.mkdir(cluster)
shutil.chown(cluster, "postgres")
options = ["--username=postgres", "--auth=trust", "--no-locale"]
options += ["--data-checksums", "--wal-segsize=1"]
command = ["initdb", "--pgdata", cluster, *options]
subprocess.run(command, user="postgres", check=True, stdout=subprocess.DEVNULL, cwd="/")
