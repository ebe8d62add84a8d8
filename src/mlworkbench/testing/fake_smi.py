"""Fake ``nvidia-smi -q -x`` for the GPUs in MLW_FAKE_GPUS (see fake_nvml.c). Tests run a copy of it."""

from __future__ import annotations

import os
import sys
from typing import Any

Card = dict[str, Any]

MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running."
)
CALLS = {"18": MISMATCH, "9": NO_DRIVER}


def read() -> tuple[dict[str, str], list[Card]]:
    head = {"driver": "580.159.04", "cuda": "13000", "init": "0"}
    cards: list[Card] = []
    with open(os.environ["MLW_FAKE_GPUS"]) as file:
        for line in file:
            word, _, value = line.strip().partition(" ")
            if word == "gpu":
                cards.append({"uuid": value, "bus": f"00000000:{len(cards) + 1:02X}:00.0"})
            elif cards and word in ("process", "mig", "lacks"):
                cards[-1].setdefault(word, []).append(value)
            else:
                (cards[-1] if cards else head)[word] = value
    return head, cards


def claimed(head: dict[str, str], card: Card) -> tuple[list[str], int, int]:
    """Return the processes that pretend to use the GPU, their memory, and their utilization."""
    memory = busy = 0
    processes = []
    for pid in os.listdir(head["claims"]) if "claims" in head else []:
        if not pid.isdigit() or not os.path.exists("/proc/" + pid):
            continue
        with open(os.path.join(head["claims"], pid)) as file:
            for line in file:
                uuid, size, util = line.split()
                if uuid == card["uuid"]:
                    processes.append(f"compute {pid} {size}")
                    memory, busy = memory + int(size), busy + int(util)
    return processes, memory, busy


def tag(name: str, value: object) -> str:
    return f"<{name}>{value}</{name}>"


def show(card: Card, head: dict[str, str], index: int) -> str:
    if "error" in card or "handle" in card:
        return f'<gpu id="{card["bus"]}">{tag("uuid", "GPU is lost")}</gpu>'
    processes, memory, busy = claimed(head, card)
    total, used = (int(number) for number in (card.get("memory", str(16 << 30)) + " 0").split()[:2])
    used += memory
    lacks = card.get("lacks", [])

    def reading(name: str, word: str, value: str) -> str:
        return tag(name, "N/A" if word in lacks else value)

    rows = ""
    for process in card.get("process", []) + processes:
        kind, pid, size = process.split()
        facts = tag("pid", pid) + tag("type", kind[0].upper()) + tag("used_memory", f"{int(size) >> 20} MiB")
        rows += tag("process_info", facts)
    slices = "".join(
        tag("mig_device", tag("index", number) + tag("uuid", mig.split()[0]))
        for number, mig in enumerate(card.get("mig", []))
    )
    sizes = {"total": total, "used": used, "free": total - used}
    power = {"instant_power_draw": ("power", 70000), "current_power_limit": ("limit", 700000)}
    parts = [
        reading("product_name", "name", card.get("name", "NVIDIA Fake")),
        tag("uuid", card["uuid"]) + tag("minor_number", index),
        tag("mig_mode", tag("current_mig", "Enabled" if slices else "N/A")),
        tag("mig_devices", slices or "None"),
        tag("fb_memory_usage", "".join(reading(name, "memory", f"{size >> 20} MiB") for name, size in sizes.items())),
        tag("utilization", reading("gpu_util", "utilisation", f"{int(card.get('utilisation', 0)) + busy} %")),
        tag("temperature", reading("gpu_temp", "temperature", f"{card.get('temperature', 40)} C")),
        tag(
            "gpu_power_readings",
            "".join(
                reading(name, word, f"{int(card.get(word, usual)) / 1000:.2f} W")
                for name, (word, usual) in power.items()
            ),
        ),
        tag("max_clocks", reading("mem_clock", "clock", f"{card.get('clock', 3201)} MHz")),
        tag("processes", rows),
    ]
    return f'<gpu id="{card["bus"]}">{"".join(parts)}</gpu>'


def main() -> int:
    head, cards = read()
    if head["init"] in CALLS:
        print(CALLS[head["init"]])
        return 18 if head["init"] == "18" else 9
    if sys.argv[1] == "--query-gpu=uuid,compute_cap":
        for card in cards:
            print(card["uuid"], card.get("capability", "9.0"), sep=", ")
        return 0
    if sys.argv[1:3] != ["-q", "-x"]:
        print("fake nvidia-smi: unknown arguments:", *sys.argv[1:])
        return 2
    cuda = int(head["cuda"])
    print('<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>')
    print(tag("driver_version", head["driver"]))
    print(tag("cuda_version", f"{cuda // 1000}.{cuda % 1000 // 10}"))
    print(tag("attached_gpus", len(cards)))
    for index, card in enumerate(cards):
        print(show(card, head, index))
    print("</nvidia_smi_log>")
    return 0


if __name__ == "__main__":
    sys.exit(main())
