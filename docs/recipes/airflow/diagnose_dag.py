"""Look for finished training runs every ten minutes; a downstream task runs only when one of them got slower."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.decorators import task
from airflow.models.dag import DAG
from airflow.operators.bash import BashOperator

INBOX = "/srv/training/inbox"
REPORTS = "/srv/training/reports"

with DAG(
    dag_id="diagnose_training_runs",
    schedule=timedelta(minutes=10),
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
) as dag:
    # Exit status 2 (a run failed, an alert was not sent) fails the task: Airflow shows it and tells whom it tells.
    look = BashOperator(
        task_id="look",
        bash_command=f"diagnose watch {INBOX} --out {REPORTS} --once --settle 120 --jobs 2",
        retries=0,
    )

    @task.short_circuit
    def slower(since: str) -> list[str]:
        """Names of runs that got slower since the last look; an empty list skips what follows."""
        import polars as pl

        history = pl.read_parquet(f"{REPORTS}/history.parquet").filter(pl.col("current"))
        begin = int(datetime.fromisoformat(since).timestamp() * 1e9)
        return (
            history.filter((pl.col("change") == "regression") & (pl.col("analysed_ns") >= begin))
            .get_column("name")
            .to_list()
        )

    look >> slower("{{ data_interval_start }}")
