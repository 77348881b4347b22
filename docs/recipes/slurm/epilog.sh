#!/bin/sh
# Slurm epilog: diagnose what finished, without holding the node. Set in slurm.conf:
#   EpilogSlurmctld=/etc/slurm/diagnose-epilog.sh     (once a job, on the controller; needs the inbox mounted there)
# or Epilog=... (once a job and node; several at a time share the work, each run is analysed once).
# Settings come from this file, or from the environment:
[ -r /etc/diagnose/watch.env ] && . /etc/diagnose/watch.env
: "${DIAGNOSE_INBOX:=/srv/training/inbox}" "${DIAGNOSE_REPORTS:=/srv/training/reports}" "${DIAGNOSE_SETTLE:=60}"
export PATH="${DIAGNOSE_PATH:-/usr/local/bin:/usr/bin:/bin}"

# An epilog must not fail and must not wait: a failing one drains the node.
[ -d "$DIAGNOSE_INBOX" ] || exit 0
mkdir -p "$DIAGNOSE_REPORTS" || exit 0
export DIAGNOSE_INBOX DIAGNOSE_REPORTS DIAGNOSE_SETTLE
# In a session of its own: Slurm kills the epilog's process group when the script ends.
# It sleeps because the last files of the job are that old when nothing writes any more.
setsid sh -c '(
  sleep "$DIAGNOSE_SETTLE"
  exec nice -n 10 diagnose watch "$DIAGNOSE_INBOX" --out "$DIAGNOSE_REPORTS" --once --settle "$DIAGNOSE_SETTLE" --jobs 2
) &' </dev/null >>"$DIAGNOSE_REPORTS/epilog.log" 2>&1
exit 0
