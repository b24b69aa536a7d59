"""A process that judges programs one after the other, and may die or hang: `Worker.ask`.

Used by __main__.py and shrink.py.
"""

import os
import subprocess
import sys
import tempfile
from multiprocessing import Pipe
from pathlib import Path

SECONDS, WAIT = 60, 10  # of a processor, which a program may take, and times that of the clock
EACH = 300  # programs for a process, so that none grows without end


class Worker:
    def __init__(self, kind: str, seconds: float = SECONDS):
        self.kind, self.seconds = kind, seconds
        self.process, self.pipe, self.asked = None, None, 0

    def ask(self, text: str, fresh: bool = False) -> dict:
        """The verdict; "dies" and "hangs" are kinds of their own."""
        if fresh or self.asked >= EACH:
            self.end()
        if self.process is None:
            self._start()
        self.asked += 1
        try:
            self.pipe.send(text)
            return self.pipe.recv() if self._answers() else self._hangs()
        except (EOFError, OSError):
            code = self.process.wait()
            self.end()
            return {"status": "differs", "kind": "dies", "why": f"the process ended with {code}"}

    def _answers(self) -> bool:
        """Waits as long as a program may take; other processes' work does not count."""
        begun, waited = _used(self.process.pid), 0
        while not self.pipe.poll(1):
            waited += 1
            used = _used(self.process.pid) - begun
            if used > self.seconds or waited > WAIT * self.seconds:
                return False
        return True

    def _hangs(self) -> dict:
        self.end()
        return {"status": "differs", "kind": "hangs", "why": f"over {self.seconds} s"}

    def _start(self) -> None:
        self.pipe, theirs = Pipe()
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 closed in end()
        command = [sys.executable, str(Path(__file__).parent), "--serve", str(theirs.fileno())]
        self.process = subprocess.Popen(
            [*command, "--kind", self.kind],
            pass_fds=[theirs.fileno()],
            stdout=self.log,
            stderr=self.log,
        )
        theirs.close()
        self.asked = 0

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.pipe.close()
            self.log.close()
            self.process = None


def _used(pid: int) -> float:
    """Seconds of a processor that a process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def serve(judge, number: int) -> None:
    """The other side: judges what comes until nothing does."""
    from multiprocessing.connection import Connection

    pipe = Connection(number)
    while True:
        try:
            text = pipe.recv()
        except EOFError:
            return
        try:
            verdict = judge(text)
        except Exception as error:
            verdict = {"status": "differs", "kind": "judge", "why": repr(error)}
        pipe.send(verdict)
