"""Forty faults from a week on a GPU machine: what the user must see, and the tests that prove it.

``test_fault_table.py`` checks that every test named here exists. It also contains the tests of faults that no other
module covers. Where ``soak`` is set, `make soak` repeats the fault hundreds of times at random moments.
"""

from __future__ import annotations

from dataclasses import dataclass

_E2E, _SUPERVISOR = "tests/e2e/", "tests/supervisor/"


@dataclass(frozen=True)
class Row:
    number: int
    fault: str
    user_sees: str
    proofs: tuple[str, ...]
    soak: bool = False


def _here(case: str) -> str:
    return f"{_E2E}test_fault_table.py::test_fault[{case}]"


def _numbered(*rows: tuple[str, str, tuple[str, ...]], soak: frozenset[str]) -> tuple[Row, ...]:
    return tuple(Row(number, *row, soak=row[0] in soak) for number, row in enumerate(rows, 1))


ROWS = _numbered(
    # -- kills -------------------------------------------------------------------------------------------
    (
        "client killed at each stage of a submit",
        "the same command, resume or cancel finishes the run; it starts once or never",
        (
            f"{_E2E}test_kill.py::test_submit_finishes_after_client_kill_at_stage",
            f"{_E2E}test_remote_kill.py::test_client_killed_at_stage",
            f"{_E2E}test_remote_kill.py::test_client_of_container_run_killed",
        ),
    ),
    (
        "supervisor or launcher killed at each stage",
        "a true ending: succeeded, could not start, or exit unknown where nobody can know",
        (
            f"{_E2E}test_remote_kill.py::test_remote_process_killed_at_stage",
            f"{_SUPERVISOR}test_death.py::test_killed_at_a_stage",
            f"{_SUPERVISOR}test_container_death.py::test_killed_at_a_stage",
        ),
    ),
    (
        "everything of mlw killed while the script runs",
        "the script goes on; the next command takes over and learns its ending",
        (
            f"{_E2E}test_remote_kill.py::test_container_continues_after_all_mlw_processes_are_killed",
            f"{_SUPERVISOR}test_death.py::test_everything_killed",
        ),
    ),
    (
        "agent on the target killed",
        "the next request uses a new agent; no run starts twice",
        (
            f"{_E2E}test_ssh_faults.py::test_next_request_opens_new_connection",
            f"{_E2E}test_remote_kill.py::test_twenty_kills_on_both_sides_of_connection",
        ),
    ),
    (
        "client killed while outputs come home",
        "no file under its name with wrong content; the next command continues",
        (f"{_E2E}test_remote_kill.py::test_client_killed_during_output_fetch",),
    ),
    (
        "client killed during an upload",
        "the next submit uploads only what is missing",
        (f"{_E2E}test_ssh_faults.py::test_upload_resumes_after_kill_9",),
    ),
    (
        "follower killed again and again",
        "the log at the end is byte for byte that of the target",
        (
            f"{_E2E}test_remote_kill.py::test_follower_killed_repeatedly",
            f"{_E2E}test_kill.py::test_follower_killed_twenty_times",
        ),
    ),
    (
        "supervisor stopped (SIGSTOP)",
        "the run counts as running; cancel works and does not wait for the supervisor",
        (_here("supervisor stopped"), f"{_E2E}test_faults.py::test_cancel_while_supervisor_is_stopped"),
    ),
    (
        "out of memory",
        "the ending names memory, also with exit code 0, and differs from a kill",
        (
            f"{_SUPERVISOR}test_death.py::test_out_of_memory_is_distinguished_from_a_kill",
            f"{_SUPERVISOR}test_container_endings.py::test_out_of_memory_with_exit_code_0",
        ),
    ),
    # -- the network -------------------------------------------------------------------------------------
    (
        "network cut for longer than the keepalive",
        "running, no contact since …; afterwards the log continues without gap or repetition",
        (f"{_E2E}test_remote_network_faults.py::test_outage_longer_than_keepalive",),
    ),
    (
        "network cut while the run ends",
        "after the cut the ending, the log and the outputs come home",
        (f"{_E2E}test_remote_network_faults.py::test_run_that_ended_during_outage",),
    ),
    (
        "network cut between launch and reply",
        "the run starts once",
        (
            f"{_E2E}test_remote_network_faults.py::test_outage_between_launch_and_response",
            f"{_E2E}test_remote_network_faults.py::test_outage_anywhere_in_launch_request",
        ),
    ),
    (
        "network cut while outputs come home",
        "the transfer continues where it was",
        (f"{_E2E}test_remote_network_faults.py::test_repeated_outages_during_output_fetch",),
    ),
    (
        "connections reset again and again",
        "one message, then the log continues",
        (f"{_E2E}test_remote_network_faults.py::test_repeated_connection_resets",),
    ),
    (
        "session frozen with the socket open",
        "a new connection is used; commands do not hang",
        (
            f"{_E2E}test_remote_network_faults.py::test_frozen_session",
            f"{_E2E}test_ssh_faults.py::test_new_command_replaces_frozen_connection",
        ),
    ),
    (
        "sshd restarted, or away for a while",
        "runs go on; commands connect again",
        (f"{_E2E}test_remote_network_faults.py::test_temporarily_unavailable_server",),
    ),
    (
        "jump host restarted",
        "the run behind it goes on; commands connect again",
        (f"{_E2E}test_fault_table.py::test_jump_host_restart",),
    ),
    (
        "very slow connection",
        "submits work, and the keepalive does not take it for dead",
        (f"{_E2E}test_remote_network_faults.py::test_very_slow_connection",),
    ),
    # -- the laptop --------------------------------------------------------------------------------------
    (
        "laptop sleeps while the run ends",
        "on wake the follower shows the rest and the true ending",
        (_here("laptop sleeps"),),
    ),
    (
        "laptop reboots",
        "only files are left there; ps shows the true state",
        (_here("laptop reboots"),),
    ),
    (
        "disk of the laptop full",
        "an error names the disk; other runs are listed; everything comes home once there is room",
        (_here("laptop disk full"), f"{_E2E}test_faults.py::test_full_disk_is_reported"),
    ),
    (
        "the run's folder on the laptop removed by hand",
        "the copy is fetched again; other runs are not affected",
        (_here("laptop copy removed"),),
    ),
    (
        "clock of the laptop a day off",
        "durations are right; nothing is negative",
        (_here("laptop clock ahead"), _here("laptop clock back")),
    ),
    (
        "index of the laptop damaged",
        "it is set aside and rebuilt from the run folders",
        (f"{_E2E}test_history.py::test_damaged_index_is_detected_set_aside_and_rebuilt",),
    ),
    # -- the target --------------------------------------------------------------------------------------
    (
        "target reboots",
        "ending `target rebooted`; the run is not started again",
        (f"{_E2E}test_remote_target_faults.py::test_reboot_during_run",),
    ),
    (
        "target is a container that restarts",
        "ending `target restarted`; cancel works",
        (
            f"{_E2E}test_remote_target_faults.py::test_restart_of_container_that_is_target",
            "tests/unit/remote/test_restart_detection.py::test_change",
        ),
    ),
    (
        "clock of the target jumps a day while a run goes on",
        "the time limit does not fire; durations are right",
        (
            _here("target clock jumps ahead"),
            _here("target clock jumps back"),
            f"{_E2E}test_remote_target_faults.py::test_target_clock_off_by_a_day",
        ),
    ),
    (
        "home of the target not mounted for a while",
        "no run ends by it; the contact says what is missing",
        (
            f"{_E2E}test_remote_target_faults.py::test_temporarily_unmounted_home_loses_nothing",
            f"{_SUPERVISOR}test_write_errors.py::test_a_home_that_is_not_mounted_for_a_while",
        ),
    ),
    (
        "home of the target read-only",
        "a submit says so; an ending that cannot be written waits, and status says so",
        (
            f"{_E2E}test_remote_target_faults.py::test_read_only_home",
            f"{_E2E}test_remote_disk.py::test_temporarily_read_only_home",
        ),
    ),
    (
        "disk of the target full at submit",
        "an error names the disk; the run never starts, and the next one does once there is room",
        (f"{_E2E}test_remote_target_faults.py::test_disk_full_during_upload",),
    ),
    (
        "disk of the target full during a run, or at its end",
        "the exit code is the script's; the cause names the disk",
        (
            f"{_E2E}test_remote_target_faults.py::test_disk_full_during_run",
            f"{_SUPERVISOR}test_write_errors.py::test_a_disk_without_a_byte_takes_the_exit_code",
        ),
    ),
    (
        "run folder on the target deleted",
        "ending `target lost the run`; other runs are not affected",
        (f"{_E2E}test_remote_target_faults.py::test_remote_run_folder_is_deleted",),
    ),
    (
        "log on the target truncated by hand",
        "what is at home stays; the ending is the script's",
        (_here("log truncated"),),
    ),
    (
        "event journal on the target damaged",
        "the run is listed as running; its ending is the script's",
        (
            _here("journal damaged"),
            f"{_SUPERVISOR}test_hostile_folder.py::test_an_event_journal_that_the_script_damages",
        ),
    ),
    (
        "programs of mlw on the target deleted",
        "the run goes on; the next command uploads them again",
        (_here("programs deleted"),),
    ),
    (
        "engine restarted, or container removed by hand",
        "ending `engine stopped it`, or nothing at all with live-restore",
        (
            f"{_E2E}test_remote_target_faults.py::test_restarted_engine",
            f"{_E2E}test_remote_target_faults.py::test_run_continues_with_live_restore_engine",
            f"{_SUPERVISOR}test_container_endings.py::test_container_ended_from_outside",
        ),
    ),
    # -- users and keys ----------------------------------------------------------------------------------
    (
        "two laptops submit to and cancel on one machine",
        "each sees its runs; a run that both cancel ends once",
        (_here("two laptops cancel"), f"{_E2E}test_remote_runs.py::test_two_laptops_and_project_attached_twice"),
    ),
    (
        "second user on the same machine",
        "neither sees the runs of the other",
        (f"{_E2E}test_remote_target_faults.py::test_two_users_on_one_machine",),
    ),
    (
        "laptop lost, or a purge by another one",
        "another laptop takes in the runs; nothing that is not home is deleted",
        (
            f"{_E2E}test_history_fetch.py::test_history_is_recovered_after_laptop_loss",
            f"{_E2E}test_purge.py::test_unfetched_results_of_another_laptop_prevent_purge",
        ),
    ),
    (
        "login key revoked, or host key changed, while a run goes on",
        "running, no contact since … with the reason; nothing is sent to an unknown host",
        (
            _here("key revoked"),
            _here("host key changed"),
            f"{_E2E}test_attach_authentication.py::test_changed_host_key_blocks_all_commands",
        ),
    ),
    soak=frozenset(
        (
            "client killed at each stage of a submit",
            "supervisor or launcher killed at each stage",
            "agent on the target killed",
            "connections reset again and again",
        )
    ),
)
