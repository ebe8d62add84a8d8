"""``Framework: PySpark`` on a machine reached over SSH, without a cluster."""

from __future__ import annotations

import pytest

from tests.e2e.remote_target import RemoteTarget
from tests.e2e.spark_projects import HELPER, JOB, configure_pyspark, set_compute_key

pytestmark = pytest.mark.timeout(300)


def test_spark_job_on_remote_machine(laptop, machine, spark):
    host = machine()
    root = laptop.project("far", job=JOB, helper=HELPER)
    remote = RemoteTarget(laptop, host, "remote", project=root)
    configure_pyspark(root, "box", configuration={"spark.mlw.test": "over there", "spark.master": "local[2]"})
    refused = remote.submit("job.py")
    assert refused.code == 78 and "on box Spark was not found" in refused.err, refused
    assert "set Framework: Python in aml_config/box.runconfig" in refused.err.partition("hint:")[2], refused
    assert laptop.runs() == [], "told before the run"
    set_compute_key(root, "box", "pythonLocation", str(spark.copy_to(host.home / "spark").python))
    done = remote.submit("job.py", "1", timeout=240)
    assert done.code == 0, done
    assert {"arguments ['1']", "told over there", "total 9900"} <= set(done.out.splitlines()), done
    assert "Spark: application local-" in done.err, done
    record = laptop.info(done.run)
    assert (record["status"], record["total"]) == ("Completed", 9900.0), record
    assert (laptop.folder(done.run) / "work/outputs/rows.txt").read_text().split()[-1] == "198"
    assert list((remote.target_folder(done.run) / "spark").glob("scratch")) == [], "what the driver needed is gone"
