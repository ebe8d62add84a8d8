"""Configuration files of the Slurm cluster for tests.

All settings that only shorten waiting times are listed in `QUICK`; everything else is what a site would write.
"""

from __future__ import annotations

NAME = "hpc"
GPUS_PER_NODE = 2
CPUS_PER_NODE = 8
MEMORY_PER_NODE = 8000  # MB; only configured, not reserved
FAKE_GPU = "195"  # the device number of NVIDIA's driver, which does not exist here: Slurm only checks the file's type
QUICK = """\
# A requeued job may not start before the credential of its last start expires: 120 s by default.
AuthInfo=cred_expire=10
KillWait=3
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1,bf_resolution=1
"""
_COMMON = f"""\
ClusterName={NAME}
SlurmctldHost=ctl
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
{QUICK}
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
SlurmctldTimeout=300
# Tests declare a node down themselves: a short timeout would do so whenever this computer is busy.
SlurmdTimeout=300
ReturnToService=2
JobRequeue=1
MailProg=/bin/true
MpiDefault=none
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/linux
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=500
# This computer has fewer processors and less memory than its nodes pretend to have.
SlurmdParameters=config_overrides
GresTypes=gpu
PreemptMode=REQUEUE
NodeName=DEFAULT CPUs={CPUS_PER_NODE} RealMemory={MEMORY_PER_NODE} Gres=gpu:h200:{GPUS_PER_NODE} State=UNKNOWN
PartitionName=DEFAULT MaxTime=1-00:00:00 DefaultTime=01:00:00 State=UP
"""
_WITH_ACCOUNTING = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=ctl
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
AccountingStoreFlags=job_comment
PreemptType=preempt/qos
"""
_WITHOUT_ACCOUNTING = """\
AccountingStorageType=accounting_storage/none
PreemptType=preempt/partition_prio
"""
SLURMDBD = """\
DbdHost=ctl
SlurmUser=root
AuthType=auth/munge
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=root
StorageLoc=slurm_acct_db
PidFile=/run/slurmdbd.pid
LogFile=/var/log/slurm/slurmdbd.log
"""
GRES = f"Name=gpu Type=h200 File=/dev/nvidia[0-{GPUS_PER_NODE - 1}]\n"
CGROUP = """\
CgroupPlugin=cgroup/v1
CgroupMountpoint=/run/cgroup
ConstrainRAMSpace=yes
"""
# Slurm creates its control groups at the top of each hierarchy. Here they must be below the group of the sandbox, so
# that the end of a session finds them. Slurm checks for `release_agent`, which only the top has.
MOUNT_CGROUPS = """\
set -eu
for kind in freezer memory cpuset devices cpuacct; do
  group=/sys/fs/cgroup/$kind$1
  mkdir -p "$group" "/run/cgroup/$kind/slurm_$2"
  if [ $kind = cpuset ]; then # an empty group of this kind accepts no process
    for file in cpus mems; do
      for folder in "${group%/*}" "$group"; do cat "/sys/fs/cgroup/cpuset/cpuset.$file" >"$folder/cpuset.$file"; done
    done
  fi
  mount --bind "$group" "/run/cgroup/$kind/slurm_$2"
  : >"/run/cgroup/$kind/release_agent"
  for file in cgroup.procs tasks; do
    : >"/run/cgroup/$kind/$file"
    mount --bind "$group/$file" "/run/cgroup/$kind/$file"
  done
done
"""
ACCOUNTS = (
    f"add cluster {NAME}",
    "add qos low Priority=1",
    "add qos high Priority=100 Preempt=low,normal",
    "modify qos normal set Priority=10 Preempt=low",
    "add account research Description=research Organization=lab",
)


def slurm_conf(nodes: dict[str, str], accounting: bool, extra: dict[str, str]) -> str:
    """Return slurm.conf for nodes with these addresses. `extra` replaces settings."""
    text = _COMMON + (_WITH_ACCOUNTING if accounting else _WITHOUT_ACCOUNTING)
    kept = [line for line in text.splitlines() if line.partition("=")[0] not in extra]
    kept += [f"{key}={value}" for key, value in extra.items()]
    names = ",".join(nodes)
    kept += [f"NodeName={name} NodeAddr={address}" for name, address in nodes.items()]
    kept += [
        f"PartitionName=gpu Nodes={names} Default=YES PriorityTier=10 PreemptMode={'REQUEUE' if accounting else 'OFF'}",
        f"PartitionName=low Nodes={names} PriorityTier=1 PreemptMode=REQUEUE",
    ]
    return "\n".join(kept) + "\n"


def accounts(users: list[str]) -> list[str]:
    """Return the commands for sacctmgr."""
    choice = "Account=research DefaultAccount=research QOS=low,normal,high DefaultQOS=normal"
    return [*ACCOUNTS, *(f"add user {user} {choice}" for user in users)]
