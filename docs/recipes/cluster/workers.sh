#!/usr/bin/env bash
# A Dask scheduler here and one worker a core on each host named: bash workers.sh node01 node02 ...
# The environment with diagnose-training[cluster] has the same path on all of them. Ctrl-C ends everything.
set -euo pipefail
port=${PORT:-8786}
here=${SCHEDULER_HOST:-$(hostname -f)}
dask=$(command -v dask)
trap 'kill $(jobs -p) 2>/dev/null' EXIT
"$dask" scheduler --host "$here" --port "$port" &
for host in "$@"; do
    # -tt: the workers end with the connection
    ssh -tt -o BatchMode=yes "$host" "$dask" worker "tcp://$here:$port" --nworkers '$(nproc)' --nthreads 1 --local-directory /tmp </dev/null &
done
wait
