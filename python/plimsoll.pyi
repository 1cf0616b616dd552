"""An embeddable commit log whose appenders never wait for a disk they did not ask to wait for.

A record has an index, counted from 1 or from ``first_index``. It is *buffered* (in memory), then
*written* (the kernel has it: it survives a crash of the process), then *durable* (a good sync covers
it: it survives a power cut).
"""

from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Awaitable, Iterable, Iterator, Literal, Optional, Tuple, Type, Union

Ack = Literal["buffered", "written", "durable"]
# Anything that memoryview() takes: bytes, bytearray, memoryview, array, a numpy array, mmap.
Buffer = Any

__version__: str

def auto(profile: str) -> dict[str, Any]:
    """Keywords for a policy that suits the disk which a durability profile is about: ``plimsoll lab`` writes
    durability-profile.json. ``Log(path, **auto(Path("durability-profile.json").read_text()))``.

    Raises Invalid: no such profile, or nothing was measured that tells.
    """

class Log:
    """A commit log in a directory, which is made if it is not there. Any thread may use it.

    ``with`` closes it; without, call ``close``. After a fork use it in the parent only: in the child every
    call raises Invalid, and nothing there touches the log.
    """

    path: Path
    recovery: Recovery
    def __init__(
        self,
        path: Union[str, PathLike[str]],
        *,
        policy: Literal["interval", "always", "never"] = "interval",
        max_age: float = 1.0,
        max_bytes: int = 64 << 20,
        segment_bytes: int = 64 << 20,
        ring_bytes: int = 32 << 20,
        ring_file: Union[str, PathLike[str], None] = None,
        first_index: int = 1,
        page_cache: bool = False,
        accept_loss: bool = False,
    ) -> None:
        """Opens the log. Everything that ``recovery`` counts is durable then, but for what was replayed.

        policy: when the log syncs by itself. "interval": once a record is ``max_age`` seconds old
            (``inf``: whatever its age), or ``max_bytes`` are not durable; appends wait at twice that.
            "always": an append returns when it is durable. "never": only when a segment is full, and
            at ``close``.
        segment_bytes: of a file, a multiple of 4096. ring_bytes: that may be accepted and not yet
            durable, a power of two up to 512 MiB, whatever the size of a segment.
        ring_file: on tmpfs (/dev/shm/NAME): then a record survives a crash of the process from the
            moment ``append`` returns.
        first_index: of a log that is made; one that exists goes on where it is.
        page_cache: no O_DIRECT.
        accept_loss: cut the log before durable records that are lost.

        Raises Locked (``holder`` has it), Corrupt (nothing was changed), Version (another one wrote it),
        Disk, Invalid.
        """

    def append(self, record: Buffer, ack: Optional[Ack] = None) -> int:
        """Appends a record and returns its index when it is as far as ``ack`` says (or the policy).

        Waits if the ring is full. Raises TooLarge, OutOfSpace: not accepted, the log goes on. Stopped,
        Closed.
        """

    def try_append(self, record: Buffer) -> int:
        """Appends a record, buffered; raises WouldBlock where that would wait for room."""

    def append_batch(self, records: Iterable[Buffer], ack: Optional[Ack] = None) -> Tuple[int, int]:
        """Appends records that stay together: after a crash all of them are there, or none.

        Returns the indexes of the first and of the last.
        """

    def append_pieces(self, pieces: Iterable[Buffer], ack: Optional[Ack] = None) -> int:
        """Appends one record whose bytes are in pieces, one behind the other; otherwise as ``append``."""

    def wait(
        self,
        index: int,
        level: Literal["written", "durable"] = "durable",
        timeout: Optional[float] = None,
    ) -> None:
        """Waits until a record is as far as ``level`` says, at most ``timeout`` seconds (then TimedOut).

        Asks for that under any policy, and it goes on when the time is over. Ctrl-C works meanwhile.
        Raises OutOfRange, Truncated, Stopped, Closed (the log was dropped before it came so far).
        """

    def wait_async(
        self, index: int, level: Literal["written", "durable"] = "durable"
    ) -> Awaitable[None]:
        """As ``wait``, to be awaited in a task of asyncio; it holds up no thread.

        What was asked for goes on where the task is cancelled (``asyncio.wait_for``).
        """

    def watch(
        self,
        index: int,
        level: Literal["written", "durable"] = "durable",
        timeout: Optional[float] = None,
    ) -> None:
        """As ``wait``, but asks for nothing: it comes when the policy, or somebody else, has it so."""

    def watch_async(
        self, index: int, level: Literal["written", "durable"] = "durable"
    ) -> Awaitable[None]:
        """As ``watch``, to be awaited in a task of asyncio."""

    def health(self) -> None:
        """Raises what is wrong with the log, if anything is: Stopped, OutOfSpace, Closed.

        OutOfSpace: a segment failed, and there is no room for another, so what was accepted after
        ``index`` is in memory only; the log goes on once there is room.
        """

    def sync(self) -> int:
        """Makes everything durable that was appended before; returns the index of the last of it."""

    @property
    def first_index(self) -> int:
        """The oldest record; one more than the newest if there is none."""

    @property
    def last_index(self) -> int:
        """The newest record that was accepted."""

    @property
    def written(self) -> int:
        """The last record that the kernel has."""

    @property
    def durable(self) -> int:
        """The last record that is durable."""

    @property
    def max_record_bytes(self) -> int:
        """The largest record that this log takes."""

    @property
    def closed(self) -> bool:
        """Whether it was closed, or is being closed."""

    def read(
        self, start: Optional[int] = None, level: Literal["written", "durable"] = "written"
    ) -> Records:
        """Records from ``start`` (or the oldest) on, up to the end as it is; every checksum verified."""

    def follow(
        self,
        start: Optional[int] = None,
        timeout: Optional[float] = None,
        level: Literal["written", "durable"] = "written",
    ) -> Records:
        """As ``read``, and then those that come. Ends when the log is closed, or when no record came for
        ``timeout`` seconds. Ctrl-C works meanwhile.
        """

    def read_piece(self, index: int, offset: int, length: int) -> bytes:
        """Bytes of a record that is written, from ``offset`` on, without the rest of it; fewer than ``length``
        where it ends. **Not checked**: the checksum covers the whole record. Raises OutOfRange, Corrupt, Disk.
        """

    def truncate_before(self, index: int) -> int:
        """Removes the oldest segments that hold nothing from ``index`` on; returns the oldest record left.

        Whole segments go; the last one stays, and what is not durable.
        """

    def retain_bytes(self, bytes: int) -> int:
        """As ``truncate_before``; keeps the newest segments, as many as take no more than ``bytes``."""

    def retain_age(self, seconds: float) -> int:
        """As ``truncate_before``; keeps what was appended no longer than ``seconds`` ago."""

    def truncate_after(self, last_index: int) -> None:
        """Cuts off every record after ``last_index``; they never come back. Durable on return.

        Whoever waits for one of them is told Truncated. Appends go on meanwhile.
        """

    def stats(self) -> dict[str, Any]:
        """What the log did since it was opened: counts, and distributions in nanoseconds."""

    def close(self) -> None:
        """Makes everything durable and ends the log. Calls of other threads end first; who follows is woken.

        Calls that come meanwhile raise Closed. Nothing the second time, but to wait until the first is done.
        """

    def __enter__(self) -> Log: ...
    def __exit__(
        self,
        exc_type: Optional[Type[BaseException]],
        exc: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None: ...

class Crew:
    """Threads and ring memory that many logs share: for dozens of logs in a process, or for one a tenant.

    A log by itself has four threads and a segment of 64 MiB before its first record. The logs of a crew
    share its threads, which sleep unless a log has something to do, and begin small. Each keeps the
    promises of its own options, as if it were alone. A record that is only buffered stays so for longer:
    under "interval" until the sync that is due for it.

    Any thread may open logs with it. After a fork it is its parent's, as its logs are.
    """

    def __init__(self, *, threads: int = 4, ring_bytes: int = 256 << 20) -> None:
        """threads: for all logs, at most 1024; one that waits for a disk serves no other log meanwhile.
        ring_bytes: that may be accepted and not yet durable, in all logs together.
        """

    def open(
        self,
        path: Union[str, PathLike[str]],
        *,
        policy: Literal["interval", "always", "never"] = "interval",
        max_age: float = 1.0,
        max_bytes: int = 64 << 20,
        segment_bytes: int = 64 << 20,
        ring_bytes: int = 32 << 20,
        ring_file: Union[str, PathLike[str], None] = None,
        first_index: int = 1,
        page_cache: bool = False,
        accept_loss: bool = False,
    ) -> Log:
        """Opens a log, as ``Log`` does. Raises Closed after ``close``."""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    def close(self) -> None:
        """No more logs are opened with it. Those that are open go on, and are closed one by one: its threads
        end with the last of them.
        """

    def __enter__(self) -> Crew: ...
    def __exit__(
        self,
        exc_type: Optional[Type[BaseException]],
        exc: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None: ...

class View:
    """A log's files, read while it may be open elsewhere: nothing is changed, and no lock is taken.

    It has what is written, whether that is durable or not, and of a damaged log what can be read. What it says is
    of its last look: when it was made, or when what was read from it last came to its end.
    """

    path: Path
    def __init__(self, path: Union[str, PathLike[str]]) -> None:
        """Raises Disk where the directory cannot be read."""

    @property
    def is_log(self) -> bool:
        """Whether there is a log in the directory."""

    @property
    def first_index(self) -> int:
        """The oldest record; the next one if there is none."""

    @property
    def generation(self) -> int:
        """How often records were cut off, or a failed segment was replaced, as far as is known. Where it has
        changed, what was read may be another record's now.
        """

    def read(self, start: Optional[int] = None) -> Records:
        """Records from ``start`` (or the oldest) on, up to the end as it is; every checksum verified. Ask it
        again, after a while, for what has come since.
        """

class Records(Iterator[Tuple[int, bytes]]):
    """(index, record) in order. At the end it may be asked again, for what has come since."""

    next_index: int
    def __iter__(self) -> Records: ...
    def __next__(self) -> Tuple[int, bytes]: ...

class Recovery:
    """What opening a log found, and did about it."""

    created: bool
    clean: bool
    first_index: int
    last_index: int
    replayed: int
    discarded: list[str]
    torn_tail: Optional[str]
    ring_ignored: Optional[str]
    lost: Optional[str]

class Error(Exception):
    """What a log raises. ``code`` is its number in plimsoll.h."""

    code: int
    index: Optional[int]
    holder: Optional[int]

class WouldBlock(Error): ...
class TimedOut(Error, TimeoutError): ...
class OutOfRange(Error): ...
class Truncated(Error): ...
class TooLarge(Error, ValueError): ...
class OutOfSpace(Error): ...
class Closed(Error, ValueError): ...
class Locked(Error): ...
class Disk(Error, OSError): ...
class Stopped(Error): ...
class Corrupt(Error): ...
class Invalid(Error, ValueError): ...
class Exhausted(Error): ...
class Version(Error): ...
