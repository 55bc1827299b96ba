"""Processor cores for what is timed at the same time: each worker has its own, and while there are enough, both halves of
a core that runs two threads belong to one worker or lie idle."""
import os
import pathlib


def siblings_of(cpu):
    """The logical processors of a logical processor's core, itself among them."""
    path = pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        text = path.read_text()
    except OSError:
        return {cpu}
    found = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def apart(cpus, siblings=siblings_of):
    """The logical processors, one of each core before the second of any."""
    cores = {}
    for cpu in sorted(cpus):
        cores.setdefault(min(siblings(cpu)), []).append(cpu)
    return [cpu for nth in range(max(map(len, cores.values()))) for core in cores.values() for cpu in core[nth:nth + 1]]


def groups(count, size, cpus=None, siblings=siblings_of):
    """`count` sets of `size` logical processors of those that this process may use. Raises ValueError if there are too few."""
    allowed = os.sched_getaffinity(0) if cpus is None else cpus
    if count < 1 or size < 1 or count * size > len(allowed):
        raise ValueError(f"{count} workers with {size} processors each, of {len(allowed)} that this process may use")
    found = apart(allowed, siblings)
    return [set(found[i * size:(i + 1) * size]) for i in range(count)]


def bind(cpus):
    """Binds the calling thread, and the processes that it starts from now on."""
    os.sched_setaffinity(0, cpus)
