"""The promises of the Python module, on a real disk, with real kills. Run by `python/test`."""

import array
import asyncio
import doctest
import inspect
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import plimsoll
from plimsoll import Log

HERE = pathlib.Path(__file__).parent
SMALL = dict(segment_bytes=256 << 10)


def payload(index):
    return index.to_bytes(8, "little") + bytes([index % 251]) * (index * 37 % 500)


class Scratch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name) / "log"

    def open(self, **options):
        log = Log(self.dir, **{**SMALL, **options})
        self.addCleanup(log.close)
        return log


class Programs(Scratch):
    """In a process of their own: what hangs there fails its test, and does not hang it."""

    def run_program(self, program, *arguments):
        program = "import os, signal, sys, threading, time, plimsoll\nfrom plimsoll import Log\n" + program
        command = [sys.executable, "-c", program, str(self.dir), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertEqual((done.stderr, done.returncode), ("", 0))
        return done.stdout


class Appending(Scratch):
    def test_what_was_appended_is_read_after_reopening(self):
        with self.open() as log:
            self.assertTrue(log.recovery.created)
            for index in range(1, 1001):
                self.assertEqual(log.append(payload(index)), index)
            self.assertEqual(log.sync(), 1000)
            self.assertEqual((log.first_index, log.last_index), (1, 1000))
            self.assertEqual((log.written, log.durable), (1000, 1000))
        self.assertTrue(log.closed)
        with self.open() as log:
            self.assertTrue(log.recovery.clean)
            self.assertIsNone(log.recovery.torn_tail)
            self.assertEqual(log.recovery.last_index, 1000)
            self.assertEqual(list(log.read()), [(i, payload(i)) for i in range(1, 1001)])
            self.assertEqual([index for index, _ in log.read(900)], list(range(900, 1001)))

    def test_an_append_is_as_far_as_it_was_asked_to_be(self):
        with self.open(policy="never") as log:
            self.assertEqual(log.append(b"x", ack="written"), 1)
            self.assertGreaterEqual(log.written, 1)
            self.assertEqual(log.append(b"x", ack="durable"), 2)
            self.assertEqual(log.durable, 2)
        with self.open(policy="always") as log:
            self.assertEqual(log.append(b"x"), log.durable)

    def test_a_batch_gets_indexes_that_follow_each_other(self):
        with self.open() as log:
            self.assertEqual(log.append_batch([b"a", bytearray(b"b"), b""], ack="durable"), (1, 3))
            self.assertEqual(list(log.read()), [(1, b"a"), (2, b"b"), (3, b"")])

    def test_anything_with_bytes_is_a_record_and_nothing_else(self):
        with self.open() as log:
            numbers = array.array("I", [1, 2, 3])
            given = [b"x", bytearray(b"y"), memoryview(b"zzz")[1:], numbers, b"abcdef"[::2]]
            log.append_batch(given + [memoryview(b"abcdef")[::2]])
            log.sync()
            expected = [b"x", b"y", b"zz", numbers.tobytes(), b"ace", b"ace"]
            self.assertEqual([record for _, record in log.read()], expected)
            for wrong in ("text", 5, None, [1]):
                with self.assertRaises(TypeError):
                    log.append(wrong)
                with self.assertRaises(TypeError):
                    log.append_batch([b"fine", wrong])
            self.assertEqual(log.last_index, 6)

    def test_a_record_is_gathered_from_pieces(self):
        with self.open() as log:
            pieces = [b"head", b"", bytearray(b"body"), memoryview(b"tails")[:4]]
            self.assertEqual(log.append_pieces(pieces, ack="durable"), 1)
            self.assertEqual(log.append_pieces([]), 2)
            log.sync()
            self.assertEqual(list(log.read()), [(1, b"headbodytail"), (2, b"")])
            with self.assertRaises(plimsoll.TooLarge):
                log.append_pieces([bytes(1 << 20)] * 20)
            with self.assertRaises(TypeError):
                log.append_pieces([b"fine", "text"])
            self.assertEqual(log.last_index, 2)

    def test_a_piece_of_a_record_is_read_without_the_rest(self):
        with self.open() as log:
            record = bytes(n * 7 // 5 % 256 for n in range(100_000))
            log.append(record, ack="written")
            self.assertEqual(log.read_piece(1, 12_345, 1000), record[12_345:13_345])
            self.assertEqual(log.read_piece(1, 99_990, 1000), record[-10:])
            self.assertEqual(log.read_piece(1, 0, 2**63), record)
            self.assertEqual(log.read_piece(1, 2**64 - 1, 5), b"")
            self.assertEqual(log.read_piece(1, 0, 0), b"")
            with self.assertRaises(plimsoll.OutOfRange) as told:
                log.read_piece(2, 0, 5)
            self.assertEqual(told.exception.index, 2)

    def test_a_log_that_is_made_begins_where_it_is_told(self):
        with self.open(first_index=1000) as log:
            self.assertEqual((log.first_index, log.append(b"x")), (1000, 1000))
            self.assertIsInstance(log.path, pathlib.Path)
            self.assertEqual(log.path, self.dir)
        with self.open(first_index=5) as log:
            self.assertEqual((log.recovery.created, log.last_index), (False, 1000))

    def test_what_is_cut_off_never_comes_back(self):
        with self.open() as log:
            for index in range(1, 101):
                log.append(payload(index))
            log.truncate_after(60)
            self.assertEqual((log.last_index, log.durable), (60, 60))
            self.assertEqual(log.append(payload(61)), 61)
        with self.open() as log:
            self.assertEqual(list(log.read()), [(i, payload(i)) for i in range(1, 62)])

    def test_retention_takes_whole_segments_and_readers_are_told(self):
        with self.open() as log:
            for _ in range(300):
                log.append(bytes(5000))
            log.sync()
            records = log.read()
            first = log.truncate_before(200)
            self.assertTrue(1 < first <= 200)
            self.assertEqual(log.first_index, first)
            with self.assertRaises(plimsoll.OutOfRange) as told:
                next(records)
            self.assertEqual(told.exception.index, 1)
            self.assertGreater(log.retain_bytes(256 << 10), first)
            self.assertEqual(log.retain_age(3600), log.first_index)

    def test_the_stats_say_what_was_done(self):
        with self.open() as log:
            log.append(b"12345", ack="durable")
            stats = log.stats()
            self.assertEqual((stats["records"], stats["payload_bytes"]), (1, 5))
            self.assertGreaterEqual(stats["sync_ns"]["n"], 1)


class Waiting(Scratch):
    def test_a_wait_asks_for_the_sync_and_ends_in_time(self):
        with self.open(policy="never") as log:
            log.wait(log.append(b"x"), timeout=60)
            self.assertEqual(log.durable, 1)
            with self.assertRaises(plimsoll.OutOfRange):
                log.wait(2, timeout=60)
            self.assertEqual(log.written, 1)
            log.wait(log.append(b"y"), "written", timeout=60)
            self.assertGreaterEqual(log.written, 2)
            late = None
            for _ in range(1000):
                index = log.append(bytes(50_000))
                try:
                    log.wait(index, timeout=0)
                except TimeoutError as error:
                    late = error
                    break
            self.assertIsInstance(late, plimsoll.TimedOut)
            self.assertEqual((late.code, late.index), (3, index))
            log.wait(index)

    def test_a_watch_asks_for_nothing_and_is_told_all_the_same(self):
        async def watch(log, index):
            watching = log.watch_async(index)
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(asyncio.shield(watching), 0.05)
            log.wait(index)
            await watching

        with self.open(policy="never") as log:
            index = log.append(b"x", ack="written")
            with self.assertRaises(plimsoll.TimedOut) as told:
                log.watch(index, timeout=0.05)
            self.assertEqual((told.exception.index, log.durable), (index, index - 1))
            syncing = threading.Timer(0.05, log.sync)
            syncing.start()
            log.watch(index, timeout=60)
            syncing.join()
            asyncio.run(watch(log, log.append(b"y", ack="written")))
            with self.assertRaises(plimsoll.OutOfRange):
                log.watch(index + 5)

    def test_who_waits_while_it_is_closed_gets_what_closing_gave(self):
        log = self.open(policy="never")
        index = log.append(bytes(100_000), ack="buffered")
        told = []

        def wait():
            try:
                told.append(log.wait(index))
            except plimsoll.Closed:
                told.append(None)  # the log was closed before it began to wait

        waiting = threading.Thread(target=wait)
        waiting.start()
        log.close()
        waiting.join(60)
        self.assertEqual(told, [None])

    def test_tasks_await_records_and_no_thread_waits(self):
        async def durably(log, record):
            index = log.append(record, ack="buffered")
            await log.wait_async(index)
            assert log.durable >= index
            await log.wait_async(index, "written")
            return index

        async def all_of_them(log):
            before = threading.active_count()
            indexes = await asyncio.gather(*(durably(log, b"%d" % n) for n in range(500)))
            self.assertEqual(threading.active_count(), before)
            return indexes

        with self.open(policy="never") as log:
            indexes = asyncio.run(all_of_them(log))
            self.assertEqual(sorted(indexes), list(range(1, 501)))
            # Another loop has the same messenger.
            self.assertEqual(asyncio.run(durably(log, b"x")), 501)

    def test_a_task_is_told_why_its_record_never_comes(self):
        async def cut(log):
            index = log.append(b"x", ack="durable") + 1
            self.assertEqual(log.append(b"y", ack="buffered"), index)
            with self.assertRaises(plimsoll.OutOfRange):
                log.wait_async(index + 1)
            with self.assertRaises(plimsoll.Invalid):
                log.wait_async(index, "buffered")
            waiting = log.wait_async(index)
            log.truncate_after(index - 1)
            try:
                await waiting
            except plimsoll.Truncated as error:
                self.assertEqual(error.index, index)  # or the sync was quicker

        async def cancelled(log):
            index = log.append(bytes(100_000), ack="buffered")
            waiting = log.wait_async(index)
            waiting.cancel()
            log.wait(index)
            await asyncio.sleep(0.05)  # what comes is for nobody, and harms nobody
            self.assertTrue(waiting.cancelled())

        with self.open(policy="never") as log:
            for _ in range(20):
                asyncio.run(cut(log), debug=True)
            asyncio.run(cancelled(log), debug=True)
        with self.assertRaises(RuntimeError), self.open() as log:
            log.wait_async(log.append(b"x"))  # and no loop runs

    def test_a_follower_in_another_thread_sees_every_record(self):
        seen = []
        with self.open() as log:
            records = log.follow()
            follower = threading.Thread(target=lambda: seen.extend(records))
            follower.start()
            for index in range(1, 3001):
                log.append(payload(index))
        # Closing wakes it, and it has read everything by then.
        follower.join(60)
        self.assertFalse(follower.is_alive())
        self.assertEqual(seen, [(i, payload(i)) for i in range(1, 3001)])

    def test_a_follower_ends_when_nothing_comes_and_goes_on_when_it_does(self):
        with self.open() as log:
            log.append(b"1")
            records = log.follow(timeout=0.05)
            begun = time.monotonic()
            self.assertEqual(list(records), [(1, b"1")])
            self.assertGreaterEqual(time.monotonic() - begun, 0.05)
            log.append(b"2")
            self.assertEqual((records.next_index, next(records)), (2, (2, b"2")))

    def test_a_timeout_that_never_ends_is_one(self):
        with self.open(max_age=float("inf")) as log:
            log.wait(log.append(b"x"), timeout=float("inf"))
            self.assertEqual(next(log.follow(timeout=float("inf"))), (1, b"x"))


class WaitingPrograms(Programs):
    def test_others_run_while_one_waits(self):
        said = self.run_program(
            """
log = Log(sys.argv[1])
records = log.follow()
waiting = threading.Thread(target=lambda: print(next(records)))
waiting.start()
time.sleep(0.3)
# Who waits with the interpreter in his hands waits for this for ever.
log.append(b"x")
waiting.join()
log.close()
"""
        )
        self.assertEqual(said, "(1, b'x')\n")

    def test_ctrl_c_ends_a_wait(self):
        program = (
            "import signal, sys, plimsoll\n"
            # A process in the background of a shell begins without it.
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "log = plimsoll.Log(sys.argv[1])\n"
            "try:\n"
            "    print('ready', flush=True)\n"
            "    for record in log.follow(): pass\n"
            "except KeyboardInterrupt:\n"
            "    log.close(); print('interrupted')\n"
        )
        command = [sys.executable, "-c", program, str(self.dir)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                self.assertEqual(process.stdout.readline(), "ready\n")
                process.send_signal(signal.SIGINT)
                out, _ = process.communicate(timeout=60)
            finally:
                process.kill()
        self.assertEqual((out, process.returncode), ("interrupted\n", 0))

    def test_a_signal_handler_may_use_what_it_interrupted(self):
        # It waited for a lock that its own thread held.
        said = self.run_program(
            """
log = Log(sys.argv[1])
log.append(b"x", ack="written")
records = log.follow(timeout=1.0)
def handler(*_):
    print(records.next_index)
    log.append(b"y", ack="written")
    print(next(records))
signal.signal(signal.SIGALRM, handler)
print(next(records))
signal.setitimer(signal.ITIMER_REAL, 0.2)
print(list(records))
print(records.next_index)
log.close()
"""
        )
        self.assertEqual(said, "(1, b'x')\n2\n(2, b'y')\n[]\n3\n")

    def test_who_waits_for_another_thread_is_interrupted_too(self):
        said = self.run_program(
            """
log = Log(sys.argv[1])
records = log.follow()
threading.Thread(target=lambda: print(list(records)), daemon=True).start()
time.sleep(0.3)
print(records.next_index, flush=True)
def handler(*_):
    raise KeyboardInterrupt
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    next(records)
except KeyboardInterrupt:
    print("interrupted", flush=True)
os._exit(0)
"""
        )
        self.assertEqual(said, "1\ninterrupted\n")


@unittest.skipUnless(hasattr(os, "fork"), "no fork here")
class Forks(Programs):
    PARENT = """
import gc, warnings
warnings.simplefilter("ignore")
log = Log(sys.argv[1], policy="never", segment_bytes=256 << 10)
log.append(b"1")
records = log.read()
def in_child(act):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        try:
            act()
        finally:
            sys.stdout.flush()
            os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
def told(call):
    try:
        call()
    except plimsoll.Invalid as error:
        assert "fork" in str(error), error
        print("told", end=" ")
def finish():
    for index in range(2, 101):
        assert log.append(b"%d" % index, ack="durable") == index
    log.close()
    with Log(sys.argv[1], segment_bytes=256 << 10) as again:
        assert [record for _, record in again.read()] == [b"%d" % i for i in range(1, 101)]
    print("sound")
"""

    def test_a_forked_child_is_told_that_the_log_is_its_parents(self):
        said = self.run_program(
            self.PARENT
            + """
def act():
    calls = [lambda: log.append(b"2"), lambda: log.append(b"2", ack="durable"), log.close, log.sync]
    calls += [lambda: log.append_batch([b"2"]), lambda: next(records), log.read, log.stats]
    calls += [lambda: log.wait(1), lambda: log.truncate_after(0), lambda: log.__exit__(None, None, None)]
    for call in calls:
        told(call)
in_child(act)
finish()
"""
        )
        self.assertEqual(said, "told " * 11 + "sound\n")

    def test_a_forked_child_that_drops_the_log_does_not_harm_it(self):
        said = self.run_program(
            self.PARENT
            + """
def act():
    global log, records
    del log, records
    gc.collect()
    print("dropped", end=" ")
in_child(act)
finish()
"""
        )
        self.assertEqual(said, "dropped sound\n")

    def test_a_forked_child_that_leaves_a_with_does_not_harm_the_log(self):
        said = self.run_program(
            self.PARENT
            + """
def act():
    try:
        with log:
            sys.exit(7)
    except SystemExit as end:
        print(end.code, end=" ")
in_child(act)
finish()
"""
        )
        self.assertEqual(said, "7 sound\n")


class Threads(Scratch):
    def test_many_threads_append_to_one_log(self):
        with self.open() as log:

            def work(number):
                for turn in range(200):
                    index = log.append(bytes([number, turn]))
                    if turn % 8 == number:
                        log.wait(index)
                        assert log.durable >= index

            threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            log.sync()
            seen = [record for _, record in log.read(level="durable")]
            for number in range(8):
                own = [record[1] for record in seen if record[0] == number]
                self.assertEqual(own, list(range(200)))

    def test_closing_while_others_append_loses_nothing_that_was_accepted(self):
        log = self.open()
        counts = []

        def work():
            accepted = 0
            try:
                while True:
                    log.append(b"x" * 20, ack="durable" if accepted % 16 == 0 else None)
                    accepted += 1
            except plimsoll.Closed:
                counts.append(accepted)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        while log.last_index < 1000:
            time.sleep(0.001)
        log.close()
        for thread in threads:
            thread.join(60)
        with self.open() as log:
            self.assertEqual(log.durable, sum(counts))


    def test_whoever_closes_returns_when_it_is_closed(self):
        turn = threading.Lock()
        failed = []

        def close(log):
            log.close()
            with turn:
                try:
                    Log(self.dir, **SMALL).close()
                except plimsoll.Error as error:
                    failed.append(error)

        for _ in range(5):
            log = self.open(policy="never")
            for _ in range(200):
                log.append(bytes(20_000))
            threads = [threading.Thread(target=close, args=(log,)) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(failed, [])

    def test_a_log_that_is_dropped_gives_its_directory_back(self):
        log = Log(self.dir, policy="never", **SMALL)
        log.append(b"x")
        del log
        with self.open() as log:
            self.assertEqual(list(log.read()), [(1, b"x")])


class Views(Scratch):
    def test_a_view_reads_a_log_that_another_process_writes(self):
        writer = """
import sys, plimsoll
log = plimsoll.Log(sys.argv[1], first_index=5, segment_bytes=256 << 10)
for line in sys.stdin:
    print(log.append(line.strip().encode(), ack="written"), flush=True)
"""
        command = [sys.executable, "-c", writer, str(self.dir)]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:

            def append(record):
                process.stdin.write(record + "\n")
                process.stdin.flush()
                return int(process.stdout.readline())

            self.assertEqual(append("one"), 5)
            view = plimsoll.View(self.dir)
            self.assertEqual((view.path, view.is_log, view.first_index), (self.dir, True, 5))
            records = view.read()
            self.assertEqual(list(records), [(5, b"one")])
            self.assertEqual(list(records), [])
            for number in range(100):
                append("x" * 5000)
            self.assertEqual([index for index, _ in records], list(range(6, 106)))
            self.assertEqual(next(view.read(100)), (100, b"x" * 5000))
            with self.assertRaises(plimsoll.OutOfRange):
                view.read(4)
            process.stdin.close()
            self.assertEqual(process.wait(60), 0)

    def test_a_view_knows_of_a_cut(self):
        with self.open() as log:
            log.append_batch([b"1", b"2", b"3"], ack="durable")
            view = plimsoll.View(self.dir)
            before = view.generation
            self.assertEqual(len(list(view.read())), 3)
            log.truncate_after(1)
            log.append(b"other", ack="durable")
            list(view.read())
            self.assertGreater(view.generation, before)
            self.assertEqual(list(view.read()), [(1, b"1"), (2, b"other")])

    def test_a_view_of_no_log_says_so(self):
        with self.assertRaises(OSError) as told:
            plimsoll.View(self.dir)
        self.assertIsInstance(told.exception, plimsoll.Disk)
        self.assertFalse(self.dir.exists())
        self.dir.mkdir()
        self.assertFalse(plimsoll.View(self.dir).is_log)
        self.assertEqual(list(self.dir.iterdir()), [])


class Errors(Scratch):
    def test_a_second_opener_is_told_who_has_the_log(self):
        with self.open():
            with self.assertRaises(plimsoll.Locked) as told:
                Log(self.dir)
            self.assertEqual((told.exception.code, told.exception.holder), (9, os.getpid()))
            self.assertIn(f"process {os.getpid()}", str(told.exception))

    def test_a_bad_directory_is_an_oserror_with_its_name(self):
        self.dir.write_text("a file")
        with self.assertRaises(OSError) as told:
            Log(self.dir)
        self.assertIsInstance(told.exception, plimsoll.Disk)
        self.assertIsNotNone(told.exception.errno)
        self.assertIn(str(self.dir), str(told.exception))

    def test_what_cannot_be_is_a_valueerror(self):
        wrong = [
            dict(policy="sometimes"),
            dict(segment_bytes=1000),
            dict(segment_bytes=0),
            dict(ring_bytes=3),
            dict(max_age=-1.0),
            dict(max_age=float("nan")),
            dict(max_age=0.0),
            dict(first_index=0),
        ]
        for options in wrong:
            with self.subTest(options), self.assertRaises(ValueError) as told:
                Log(self.dir, **options)
            self.assertIsInstance(told.exception, plimsoll.Invalid)
        with self.open() as log:
            for call in (
                lambda: log.append(b"x", ack="soon"),
                lambda: log.follow(timeout=-1),
                lambda: log.read(level="most"),
                lambda: log.append_batch([]),
                lambda: log.append(bytes(17 << 20)),
                lambda: log.wait(0, "buffered"),
            ):
                with self.assertRaises(ValueError):
                    call()
            self.assertEqual(log.last_index, 0)

    def test_a_profile_of_the_disk_chooses_the_policy(self):
        knee = dict(at_risk_bytes=262144, at_risk_ms=7.5)
        profile = dict(format="plimsoll-durability-profile", version=1, knee=knee)
        keywords = plimsoll.auto(json.dumps(profile))
        self.assertEqual(keywords, dict(policy="interval", max_age=0.0075, max_bytes=262144))
        self.open(**keywords).append(b"x")
        for wrong in ("", "{}", "[" * 100_000):
            with self.assertRaises(plimsoll.Invalid):
                plimsoll.auto(wrong)

    def test_a_full_ring_refuses_and_loses_nothing(self):
        with self.open(segment_bytes=64 << 10, ring_bytes=4096) as log:
            accepted = 0
            with self.assertRaises(plimsoll.WouldBlock):
                for _ in range(100_000):
                    self.assertEqual(log.try_append(bytes(1500)), accepted + 1)
                    accepted += 1
            self.assertEqual(log.append(bytes(1500)), accepted + 1)

    def test_a_closed_log_says_so_and_closes_twice(self):
        log = self.open()
        log.append(b"x")
        records = log.follow()
        log.close()
        log.close()
        for call in (lambda: log.append(b"x"), log.sync, log.read, lambda: log.durable):
            with self.assertRaises(plimsoll.Closed):
                call()
        self.assertEqual(list(records), [(1, b"x")], "what was written is read to its end")
        self.assertIn("closed", repr(log))

    def test_what_is_lost_is_said(self):
        with self.open() as log:
            for index in range(1, 101):
                log.append(payload(index))
        (segment,) = [file for file in self.dir.iterdir() if file.suffix == ".seg"]
        sound = segment.read_bytes()
        damaged = bytearray(sound)
        damaged[4096 + 2000] ^= 1
        segment.write_bytes(damaged)
        with self.assertRaises(plimsoll.Corrupt) as told:
            log = Log(self.dir, **SMALL)
            list(log.read())
        self.assertEqual(told.exception.code, 12)
        self.assertTrue(1 < told.exception.index < 100, told.exception.index)

    def test_a_log_that_has_stopped_says_so(self):
        import resource

        log = Log(self.dir, **SMALL)
        log.append(b"x", ack="durable")
        self.assertIsNone(log.health())
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        # From here on writes fail, to any file. (Python ignores SIGXFSZ.)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
        try:
            with self.assertRaises(plimsoll.Stopped):
                log.append(b"y", ack="durable")
            with self.assertRaises(plimsoll.Stopped) as told:
                log.health()
            self.assertEqual(told.exception.index, 1)
            with self.assertRaises(plimsoll.Stopped):
                log.close()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        with self.assertRaises(plimsoll.Closed):
            log.health()

    def test_codes_are_those_of_the_header(self):
        header = (HERE / "../../crates/capi/include/plimsoll.h").read_text()
        numbers = dict(re.findall(r"^  PLIMSOLL_([A-Z_]+) = (\d+),", header, re.M))
        classes = [c for c in vars(plimsoll).values() if inspect.isclass(c) and issubclass(c, plimsoll.Error)]
        for each in classes:
            name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", each.__name__).upper()
            number = numbers["OTHER" if each is plimsoll.Error else name]
            self.assertEqual(each.code, int(number), each)
        # What cannot happen here: no error, one reader's own lock, what a panic is in Python.
        missing = {"OK", "AT_END", "BUSY", "BUG"}
        self.assertEqual(len(classes), len([n for n in numbers if n not in missing and "POLICY" not in n
                                            and "ACK" not in n]))

    def test_the_stubs_name_what_there_is(self):
        stubs = (HERE / "../plimsoll.pyi").read_text()
        for name, member in vars(plimsoll).items():
            if inspect.isclass(member):
                self.assertRegex(stubs, rf"(?m)^class {name}\b")
        for name in [*vars(Log), *vars(plimsoll.Crew), *vars(plimsoll.View)]:
            if not name.startswith("_"):
                self.assertRegex(stubs, rf"(?m)^    (def )?{name}\b")


class Readme(Scratch):
    def test_the_session_of_the_readme_is_real(self):
        self.addCleanup(os.chdir, os.getcwd())
        self.dir.mkdir()
        readme = str(HERE.resolve() / "../README.md")
        os.chdir(self.dir)
        failed, tried = doctest.testfile(readme, module_relative=False)
        self.assertTrue(failed == 0 and tried > 8, (failed, tried))


VICTIM = """
import os, sys, plimsoll
sys.path.insert(0, sys.argv[3])
from test_log import payload, SMALL
log = plimsoll.Log(sys.argv[1], **SMALL)
index = log.last_index
while True:
    index += 1
    assert log.append(payload(index), ack=sys.argv[2]) == index
    os.write(1, b"%d\\n" % index)
"""


class Crashes(Scratch):
    def kill_and_look(self, ack):
        promised = told = 0
        for round in range(6):
            command = [sys.executable, "-c", VICTIM, str(self.dir), ack, str(HERE)]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as victim:
                for heard, line in enumerate(victim.stdout):
                    # The last one may be half a line.
                    promised = int(line) if line.endswith(b"\n") else promised
                    told += 1
                    if heard == 5 + round * 67:
                        victim.kill()
                self.assertEqual(victim.wait(), -signal.SIGKILL)
            with self.open() as log:
                found = log.recovery
                self.assertFalse(found.clean)
                self.assertGreaterEqual(found.last_index, promised)
                log.sync()
                read = list(log.read())
                self.assertEqual(read, [(i, payload(i)) for i in range(1, found.last_index + 1)])
                promised = found.last_index
        self.assertGreater(told, 100)

    def test_what_was_durable_survives_a_kill(self):
        self.kill_and_look("durable")

    def test_what_was_written_survives_a_kill(self):
        self.kill_and_look("written")


if __name__ == "__main__":
    unittest.main()
