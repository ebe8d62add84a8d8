"""Forty faults of a week on a GPU machine: what the user must see, and the tests that prove it.

``test_fault_table.py`` checks that every test named here exists, and has the tests of faults that no other module
tests. Where ``soak`` is set, `make soak` repeats the fault hundreds of times at random moments.
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
    return f"{_E2E}test_fault_table.py::test_a_fault[{case}]"


def _numbered(*rows: tuple[str, str, tuple[str, ...]], soak: frozenset[str]) -> tuple[Row, ...]:
    return tuple(Row(number, *row, soak=row[0] in soak) for number, row in enumerate(rows, 1))


ROWS = _numbered(
    # -- kills -------------------------------------------------------------------------------------------
    (
        "client killed at each stage of a submit",
        "the same command, resume or cancel finishes the run; it starts once or never",
        (
            f"{_E2E}test_kill.py::test_client_killed_at_a_stage_then_finished",
            f"{_E2E}test_elsewhere_kill.py::test_client_killed_at_a_stage",
            f"{_E2E}test_elsewhere_kill.py::test_client_of_a_container_killed",
        ),
    ),
    (
        "supervisor or launcher killed at each stage",
        "a true ending: succeeded, could not start, or exit unknown where nobody can know",
        (
            f"{_E2E}test_elsewhere_kill.py::test_the_far_end_is_killed_at_a_stage",
            f"{_SUPERVISOR}test_death.py::test_killed_at_a_stage",
            f"{_SUPERVISOR}test_container_death.py::test_killed_at_a_stage",
        ),
    ),
    (
        "everything of mlw killed while the script runs",
        "the script goes on; the next command takes over and learns its ending",
        (
            f"{_E2E}test_elsewhere_kill.py::test_everything_of_ours_is_killed_and_the_container_goes_on",
            f"{_SUPERVISOR}test_death.py::test_everything_killed",
        ),
    ),
    (
        "agent on the target killed",
        "the next request uses a new agent; no run starts twice",
        (
            f"{_E2E}test_ssh_faults.py::test_the_next_request_finds_a_new_connection",
            f"{_E2E}test_elsewhere_kill.py::test_twenty_kills_on_both_sides_of_the_connection",
        ),
    ),
    (
        "client killed while outputs come home",
        "no file under its name with wrong content; the next command continues",
        (f"{_E2E}test_elsewhere_kill.py::test_client_killed_while_outputs_come_home",),
    ),
    (
        "client killed during an upload",
        "the next submit uploads only what is missing",
        (f"{_E2E}test_ssh_faults.py::test_kill_9_during_an_upload_and_the_rest_later",),
    ),
    (
        "follower killed again and again",
        "the log at the end is byte for byte that of the target",
        (
            f"{_E2E}test_elsewhere_kill.py::test_follower_killed_again_and_again",
            f"{_E2E}test_kill.py::test_follower_killed_twenty_times",
        ),
    ),
    (
        "supervisor stopped (SIGSTOP)",
        "the run counts as running; cancel works and does not wait for the supervisor",
        (_here("supervisor stopped"), f"{_E2E}test_faults.py::test_cancel_of_a_run_whose_supervisor_is_stopped"),
    ),
    (
        "out of memory",
        "the ending names memory, also with exit code 0, and differs from a kill",
        (
            f"{_SUPERVISOR}test_death.py::test_out_of_memory_is_told_apart_from_a_kill",
            f"{_SUPERVISOR}test_container_endings.py::test_out_of_memory_with_exit_code_0",
        ),
    ),
    # -- the network -------------------------------------------------------------------------------------
    (
        "network cut for longer than the keepalive",
        "running, no contact since …; afterwards the log continues without gap or repetition",
        (f"{_E2E}test_elsewhere_faults.py::test_a_cut_longer_than_the_keepalive",),
    ),
    (
        "network cut while the run ends",
        "after the cut the ending, the log and the outputs come home",
        (f"{_E2E}test_elsewhere_faults.py::test_a_run_that_ended_while_nobody_could_be_asked",),
    ),
    (
        "network cut between launch and reply",
        "the run starts once",
        (
            f"{_E2E}test_elsewhere_faults.py::test_a_cut_between_launch_and_answer",
            f"{_E2E}test_elsewhere_faults.py::test_a_cut_anywhere_in_the_launch",
        ),
    ),
    (
        "network cut while outputs come home",
        "the transfer continues where it was",
        (f"{_E2E}test_elsewhere_faults.py::test_the_network_goes_and_comes_while_outputs_come_home",),
    ),
    (
        "connections reset again and again",
        "one message, then the log continues",
        (f"{_E2E}test_elsewhere_faults.py::test_connections_that_are_reset_again_and_again",),
    ),
    (
        "session frozen with the socket open",
        "a new connection is used; commands do not hang",
        (
            f"{_E2E}test_elsewhere_faults.py::test_a_session_that_froze",
            f"{_E2E}test_ssh_faults.py::test_a_frozen_session_is_left_for_a_new_one",
        ),
    ),
    (
        "sshd restarted, or away for a while",
        "runs go on; commands connect again",
        (f"{_E2E}test_elsewhere_faults.py::test_a_server_that_is_away_for_a_while",),
    ),
    (
        "jump host restarted",
        "the run behind it goes on; commands connect again",
        (f"{_E2E}test_fault_table.py::test_a_jump_host_that_restarts",),
    ),
    (
        "very slow connection",
        "submits work, and the keepalive does not take it for dead",
        (f"{_E2E}test_elsewhere_faults.py::test_a_very_slow_line",),
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
        (_here("laptop disk full"), f"{_E2E}test_faults.py::test_full_disk_is_named"),
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
        (f"{_E2E}test_history.py::test_damaged_index_is_noticed_set_aside_and_rebuilt",),
    ),
    # -- the target --------------------------------------------------------------------------------------
    (
        "target reboots",
        "ending `target rebooted`; the run is not started again",
        (f"{_E2E}test_elsewhere_target.py::test_a_reboot_in_the_middle",),
    ),
    (
        "target is a container that restarts",
        "ending `target restarted`; cancel works",
        (
            f"{_E2E}test_elsewhere_target.py::test_a_restarted_container_as_target",
            "tests/unit/test_restart.py::test_change",
        ),
    ),
    (
        "clock of the target jumps a day while a run goes on",
        "the time limit does not fire; durations are right",
        (
            _here("target clock jumps ahead"),
            _here("target clock jumps back"),
            f"{_E2E}test_elsewhere_target.py::test_a_clock_that_is_a_day_off",
        ),
    ),
    (
        "home of the target not mounted for a while",
        "no run ends by it; the contact says what is missing",
        (
            f"{_E2E}test_elsewhere_target.py::test_a_home_that_is_not_there_for_a_while_loses_nothing",
            f"{_SUPERVISOR}test_write_errors.py::test_a_home_that_is_not_mounted_for_a_while",
        ),
    ),
    (
        "home of the target read-only",
        "a submit says so; an ending that cannot be written waits, and status says so",
        (
            f"{_E2E}test_elsewhere_target.py::test_a_home_that_cannot_be_written",
            f"{_E2E}test_elsewhere_disk.py::test_a_home_that_is_read_only_for_a_while",
        ),
    ),
    (
        "disk of the target full at submit",
        "an error names the disk; the run never starts, and the next one does once there is room",
        (f"{_E2E}test_elsewhere_target.py::test_no_room_for_the_code",),
    ),
    (
        "disk of the target full during a run, or at its end",
        "the exit code is the script's; the cause names the disk",
        (
            f"{_E2E}test_elsewhere_target.py::test_no_room_for_what_a_run_writes",
            f"{_SUPERVISOR}test_write_errors.py::test_a_disk_without_a_byte_takes_the_exit_code",
        ),
    ),
    (
        "run folder on the target deleted",
        "ending `target lost the run`; other runs are not affected",
        (f"{_E2E}test_elsewhere_target.py::test_the_folder_of_a_run_is_deleted",),
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
            f"{_E2E}test_elsewhere_target.py::test_an_engine_that_died_and_came_back",
            f"{_E2E}test_elsewhere_target.py::test_an_engine_that_restores_its_containers",
            f"{_SUPERVISOR}test_container_endings.py::test_somebody_else_ends_the_container",
        ),
    ),
    # -- people and keys ---------------------------------------------------------------------------------
    (
        "two laptops submit to and cancel on one machine",
        "each sees its runs; a run that both cancel ends once",
        (_here("two laptops cancel"), f"{_E2E}test_elsewhere.py::test_two_laptops_and_a_project_attached_twice"),
    ),
    (
        "second user on the same machine",
        "neither sees the runs of the other",
        (f"{_E2E}test_elsewhere_target.py::test_two_people_on_one_machine",),
    ),
    (
        "laptop lost, or a purge by another one",
        "another laptop takes in the runs; nothing that is not home is deleted",
        (
            f"{_E2E}test_history_fetch.py::test_a_lost_laptop_loses_no_history",
            f"{_E2E}test_purge.py::test_results_of_another_laptop_keep_a_purge_away",
        ),
    ),
    (
        "login key revoked, or host key changed, while a run goes on",
        "running, no contact since … with the reason; nothing is sent to an unknown host",
        (
            _here("key revoked"),
            _here("host key changed"),
            f"{_E2E}test_attach_ways.py::test_a_changed_key_stops_everything",
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
