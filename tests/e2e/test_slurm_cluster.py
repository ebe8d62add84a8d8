"""Smoke test of the Slurm cluster that the tests of the compute type slurm use."""

from __future__ import annotations

from tests.machines.slurm import SlurmCluster


def test_cluster_has_two_users_three_nodes_gpus_accounts_and_faults(slurm: SlurmCluster) -> None:
    work = "srun printenv SLURMD_NODENAME CUDA_VISIBLE_DEVICES"
    job = int(slurm.ssh(f"sbatch --parsable --nodes=2 --gpus-per-node=h200:1 --wrap='{work}'").stdout)
    slurm.wait_for(job, "COMPLETED")
    output = (slurm.homes.home("ada") / f"slurm-{job}.out").read_text()
    assert sorted(output.split()) == ["0", "0", "n1", "n2"]

    hungry = slurm.submit("head -c 300m /dev/zero | tail", "--mem=50", "--partition=low", user="bob")
    assert slurm.wait_for(hungry, "OUT_OF_MEMORY")["UserId"] == "bob(21002)"

    lost = slurm.submit("echo $SLURM_RESTART_COUNT; sleep 1000", "--nodelist=n3", "--qos=low", user="bob")
    slurm.wait_for(lost, "RUNNING")
    slurm.kill_node("n3")
    slurm.wait_for(lost, "PENDING")
    slurm.revive("n3")
    slurm.start_now(lost)
    assert slurm.wait_for(lost, "RUNNING")["Restarts"] == "1"

    slurm.submit("true", "--nodelist=n3", "--exclusive", "--qos=high")
    slurm.wait_for(lost, "PENDING")
    slurm.stop_controller()
    slurm.start_controller()
    assert slurm.job(lost)["Restarts"] == "2"
    assert [state for name, state, _ in slurm.sacct(lost) if name == str(lost)][:2] == ["NODE_FAIL", "PREEMPTED"]
