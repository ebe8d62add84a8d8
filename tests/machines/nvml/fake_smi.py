"""The fake nvidia-smi: ``nvidia-smi -q -x`` of the GPUs in MLW_FAKE_GPUS (see fake_nvml.c). Becomes a program."""

import os
import sys

MISMATCH = "Failed to initialize NVML: Driver/library version mismatch"
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running."
)
CALLS = {"18": MISMATCH, "9": NO_DRIVER}


def read():
    head, cards = {"driver": "580.159.04", "cuda": "13000", "init": "0"}, []
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


def claimed(head, card):
    memory = busy = 0
    found = []
    for pid in os.listdir(head["claims"]) if "claims" in head else []:
        if not pid.isdigit() or not os.path.exists("/proc/" + pid):
            continue
        with open(os.path.join(head["claims"], pid)) as file:
            for line in file:
                uuid, size, util = line.split()
                if uuid == card["uuid"]:
                    found.append(f"compute {pid} {size}")
                    memory, busy = memory + int(size), busy + int(util)
    return found, memory, busy


def tag(name, value):
    return f"<{name}>{value}</{name}>"


def show(card, head, index):
    if "error" in card or "handle" in card:
        return f'<gpu id="{card["bus"]}">{tag("uuid", "GPU is lost")}</gpu>'
    processes, memory, busy = claimed(head, card)
    total, used = (int(one) for one in (card.get("memory", str(16 << 30)) + " 0").split()[:2])
    used += memory
    lacks = card.get("lacks", [])

    def told(name, word, value):
        return tag(name, "N/A" if word in lacks else value)

    rows = ""
    for one in card.get("process", []) + processes:
        kind, pid, size = one.split()
        facts = tag("pid", pid) + tag("type", kind[0].upper()) + tag("used_memory", f"{int(size) >> 20} MiB")
        rows += tag("process_info", facts)
    slices = "".join(
        tag("mig_device", tag("index", number) + tag("uuid", one.split()[0]))
        for number, one in enumerate(card.get("mig", []))
    )
    sizes = {"total": total, "used": used, "free": total - used}
    power = {"instant_power_draw": ("power", 70000), "current_power_limit": ("limit", 700000)}
    parts = [
        told("product_name", "name", card.get("name", "NVIDIA Fake")),
        tag("uuid", card["uuid"]) + tag("minor_number", index),
        tag("mig_mode", tag("current_mig", "Enabled" if slices else "N/A")),
        tag("mig_devices", slices or "None"),
        tag("fb_memory_usage", "".join(told(one, "memory", f"{size >> 20} MiB") for one, size in sizes.items())),
        tag("utilization", told("gpu_util", "utilisation", f"{int(card.get('utilisation', 0)) + busy} %")),
        tag("temperature", told("gpu_temp", "temperature", f"{card.get('temperature', 40)} C")),
        tag(
            "gpu_power_readings",
            "".join(
                told(name, word, f"{int(card.get(word, usual)) / 1000:.2f} W") for name, (word, usual) in power.items()
            ),
        ),
        tag("max_clocks", told("mem_clock", "clock", f"{card.get('clock', 3201)} MHz")),
        tag("processes", rows),
    ]
    return f'<gpu id="{card["bus"]}">{"".join(parts)}</gpu>'


def main():
    head, cards = read()
    if head["init"] in CALLS:
        print(CALLS[head["init"]])
        return 18 if head["init"] == "18" else 9
    if sys.argv[1] == "--query-gpu=uuid,compute_cap":
        for card in cards:
            print(card["uuid"], card.get("capability", "9.0"), sep=", ")
        return 0
    if sys.argv[1:3] != ["-q", "-x"]:
        print("fake nvidia-smi: what is", *sys.argv[1:])
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
