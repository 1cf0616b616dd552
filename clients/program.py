"""One running client: what it said, and waiting for it to say it."""

import signal
import subprocess
import threading
import time


class Program:
    """Each line on its standard output is a word and its values; the rest is what it complains of."""

    def __init__(self, command, *arguments):
        self.name = " ".join(map(str, [command[-1], *arguments]))
        self.lines = []
        self.times = []
        self.complaints = []
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [*command, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe,
            text=True, errors="replace",
        )
        self.readers = [
            threading.Thread(target=follow, args=(self.process.stdout, self.lines, self.times), daemon=True),
            threading.Thread(target=follow, args=(self.process.stderr, self.complaints, []), daemon=True),
        ]
        for reader in self.readers:
            reader.start()

    def said(self, word):
        """The values of each line that begins with this word."""
        split = (line.split() for line in list(self.lines))
        return [values[1:] for values in split if values and values[0] == word]

    def until(self, what, is_so, seconds=30):
        deadline = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.name}: not within {seconds} s: {what}\n{self.tail()}")
            if self.process.poll() not in (None, 0):
                self.drain()
                raise AssertionError(f"{self.name} ended, before {what}\n{self.tail()}")
            time.sleep(0.02)

    def end(self, seconds=30):
        """Waits until it has ended by itself, and well."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} goes on after {seconds} s\n{self.tail()}") from None
        self.drain()
        assert code == 0, f"{self.name} ended with {code}\n{self.tail()}"
        return self

    def leave(self):
        """Asks it to end, and waits until it has."""
        self.process.send_signal(signal.SIGTERM)
        return self.end()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def drain(self):
        for reader in self.readers:
            reader.join(5)

    def tail(self):
        return "\n".join(["said:", *self.lines[-8:], "complained:", *self.complaints[-12:]])


def follow(pipe, lines, times):
    for line in pipe:
        lines.append(line.rstrip("\n"))
        times.append(time.monotonic())
