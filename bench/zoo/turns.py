"""Processes that work at the same time, but are timed one by one: while one's steps are timed, all others stand still.

A process that wants to be timed prints `ready` and waits for a line; when it has been timed it prints `timed`. Its
builders, imports and compilations go on beside the others', which is most of a run's time."""

import contextlib
import os
import pathlib
import select
import signal
import subprocess
import threading
import time

# Seconds from stopping the others until the first is told to go on: what a stopped process had asked of a card ends.
SETTLE = 0.25


def descendants(pid):
    """Processes that it started, and those that they started."""
    children = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            text = stat.read_text()
            children.setdefault(int(text[text.rindex(")") + 2:].split()[1]), []).append(int(stat.parent.name))
    found, next_ = [], [pid]
    while next_:
        next_ = [child for parent in next_ for child in children.get(parent, [])]
        found += next_
    return found


def signal_all(pid, number):
    """To a process and its descendants: the parents first, so that a stopped one starts no more."""
    for one in [pid, *descendants(pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, number)


class Apart:
    """Processes that are timed at the same time, each on the processors to which the thread that runs it is bound."""

    arguments = ()  # what one.py is told

    def run(self, command, limit, env):
        """(exit code, output, errors) of a command. Raises TimeoutExpired after `limit` seconds."""
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, errors="replace", env=env, start_new_session=True)
        try:
            output, errors = process.communicate(timeout=limit)
        except BaseException:
            signal_all(process.pid, signal.SIGKILL)
            process.wait()
            raise
        return process.returncode, output, errors


class Turns:
    arguments = ("--wait-for-turn",)

    def __init__(self):
        self.one = threading.Lock()  # held by whom is timed, and while a process starts
        self.live = {}  # process number: seconds that it stood still

    def run(self, command, limit, env):
        """(exit code, output, errors) of a command, which is timed where it asks for it. Raises TimeoutExpired after
        `limit` seconds of its own: those that it stood still for others, or waited for its turn, do not count."""
        with self.one:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       bufsize=0, env=env, start_new_session=True)
            self.live[process.pid] = 0.0
        errors, lines, cut = [], [], b""
        reader = threading.Thread(target=lambda: errors.append(process.stderr.readall().decode(errors="replace")))
        reader.start()
        begin, waited, own = time.monotonic(), 0.0, False
        try:
            while True:
                over = time.monotonic() - begin - waited - self.live[process.pid] - limit
                if over >= 0:
                    raise subprocess.TimeoutExpired(command, limit)
                if not select.select([process.stdout], [], [], min(-over, 1.0))[0]:
                    continue
                part = os.read(process.stdout.fileno(), 1 << 16)
                if not part:
                    lines.append(cut.decode(errors="replace"))
                    break
                *whole, cut = (cut + part).split(b"\n")
                for line in whole:
                    if line == b"ready" and not own:
                        asked, stood = time.monotonic(), self.live[process.pid]
                        self.one.acquire()
                        own, stopped = True, time.monotonic()
                        self.others(process.pid, signal.SIGSTOP)
                        time.sleep(SETTLE if len(self.live) > 1 else 0)
                        waited += time.monotonic() - asked - (self.live[process.pid] - stood)
                        with contextlib.suppress(BrokenPipeError):
                            process.stdin.write(b"go\n")
                    elif line == b"timed" and own:
                        own = self.give_back(process.pid, stopped)
                    else:
                        lines.append(line.decode(errors="replace"))
            code = process.wait()
        finally:
            if own:
                self.give_back(process.pid, stopped)
            signal_all(process.pid, signal.SIGKILL)
            process.wait()
            reader.join()
            with self.one:
                del self.live[process.pid]
        return code, "\n".join(lines), "".join(errors)

    def give_back(self, pid, stopped):
        for other in self.live:
            if other != pid:
                self.live[other] += time.monotonic() - stopped
        self.others(pid, signal.SIGCONT)
        self.one.release()
        return False

    def others(self, pid, number):
        for other in self.live:
            if other != pid:
                signal_all(other, number)
