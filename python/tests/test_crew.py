"""The promises of crews: many logs that share threads and ring memory. Run by `python/test`."""

import asyncio
import gc
import inspect
import os
import threading
import time
import unittest
import weakref

import plimsoll
from plimsoll import Crew, Log
from test_log import SMALL, Programs, Scratch, payload

TASKS = "/proc/self/task"


def threads():
    """Of this process, also those that Python does not know."""
    return len(os.listdir(TASKS))


class Crews(Scratch):
    def open_one(self, crew, number=0, **options):
        log = crew.open(self.dir / str(number), **{**SMALL, **options})
        self.addCleanup(log.close)
        return log

    def assert_threads(self, count):
        # One that has ended is seen for a moment longer.
        until = time.monotonic() + 60
        while threads() != count and time.monotonic() < until:
            time.sleep(0.001)
        self.assertEqual(threads(), count)

    @unittest.skipUnless(os.path.exists(TASKS), "nobody says here how many threads there are")
    def test_logs_of_a_crew_share_its_threads(self):
        alone = threads()
        with Crew(threads=2) as crew:
            logs = [self.open_one(crew, number) for number in range(30)]
            for log in logs:
                log.append(b"x", ack="durable")
            self.assert_threads(alone + 2)
        for log in logs:
            self.assertEqual(log.append(b"y", ack="durable"), 2)
            log.close()
        self.assert_threads(alone)

    def test_a_crew_opens_logs_with_the_options_of_a_log(self):
        keywords = list(inspect.signature(Log).parameters.values())
        self.assertEqual(list(inspect.signature(Crew.open).parameters.values())[1:], keywords)
        with Crew() as crew:
            log = self.open_one(crew, policy="always", first_index=1000)
            self.assertIsInstance(log, Log)
            self.assertTrue(log.recovery.created)
            self.assertEqual((log.append(b"x"), log.durable), (1000, 1000))
            with self.assertRaises(plimsoll.Locked):
                crew.open(log.path)
            log.close()
            with Log(log.path, **SMALL) as log:
                self.assertEqual(list(log.read()), [(1000, b"x")])
            for wrong in (dict(policy="sometimes"), dict(segment_bytes=1000), dict(max_age=-1.0)):
                with self.subTest(wrong), self.assertRaises(plimsoll.Invalid):
                    crew.open(self.dir / "wrong", **wrong)
            with self.assertRaises(TypeError):
                crew.open(self.dir / "wrong", threads=4)

    def test_a_closed_crew_opens_no_log_and_its_logs_go_on(self):
        with Crew(threads=1) as crew:
            self.assertFalse(crew.closed)
            log = self.open_one(crew)
        self.assertTrue(crew.closed)
        with self.assertRaises(plimsoll.Closed) as told:
            crew.open(self.dir / "another")
        self.assertEqual((str(told.exception), told.exception.code), ("the crew is closed", 8))
        self.assertFalse((self.dir / "another").exists())
        crew.close()
        for index in range(1, 101):
            log.append(payload(index))
        self.assertEqual(log.sync(), 100)
        self.assertEqual(list(log.read()), [(i, payload(i)) for i in range(1, 101)])

    def test_a_crew_may_be_collected_before_its_logs(self):
        crew = Crew()
        log = crew.open(self.dir, **SMALL)
        del crew
        gc.collect()
        self.assertEqual(log.append(b"x", ack="durable"), 1)
        log.append(b"y")
        del log
        gc.collect()
        with self.open() as log:
            self.assertEqual(list(log.read()), [(1, b"x"), (2, b"y")])

    def test_logs_that_nobody_holds_leave_a_weak_dictionary(self):
        with Crew() as crew:
            logs = weakref.WeakValueDictionary()
            log = logs["tenant"] = crew.open(self.dir, **SMALL)
            self.assertIs(logs["tenant"], log)
            self.assertIs(weakref.ref(crew)(), crew)
            log.append(b"x")
            del log
            gc.collect()
            self.assertEqual(list(logs), [])
            log = crew.open(self.dir, **SMALL)
            self.assertEqual(log.last_index, 1)
            log.close()

    def test_a_crew_that_cannot_be_is_a_valueerror(self):
        for threads in (0, 1025, 2**64 - 1):
            with self.subTest(threads), self.assertRaises(ValueError) as told:
                Crew(threads=threads)
            self.assertIsInstance(told.exception, plimsoll.Invalid)

    def test_no_record_is_larger_than_what_the_crew_has(self):
        with Crew(ring_bytes=1 << 20) as crew:
            log = self.open_one(crew)
            self.assertTrue(1 << 19 < log.max_record_bytes < 2 << 20)
            with self.assertRaises(plimsoll.TooLarge):
                log.append(bytes(2 << 20))
            self.assertEqual(log.append(bytes(log.max_record_bytes), ack="durable"), 1)

    @unittest.skipUnless(os.path.exists(TASKS), "nobody says here how many threads there are")
    def test_tasks_that_await_logs_of_a_crew_share_a_thread(self):
        async def durably(log):
            await log.wait_async(log.append(b"x", ack="buffered"))

        async def all_of_them(logs):
            await asyncio.gather(*(durably(log) for log in logs))

        alone = threads()
        with Crew(threads=2) as crew:
            logs = [self.open_one(crew, number, policy="never") for number in range(20)]
            asyncio.run(all_of_them(logs))
            self.assertEqual([log.durable for log in logs], [1] * 20)
            self.assert_threads(alone + 3)
            for log in logs:
                log.close()
        del crew, log, logs
        self.doCleanups()
        self.assert_threads(alone)

    def test_many_threads_open_logs_while_the_crew_is_closed(self):
        for _ in range(10):
            crew = Crew(threads=2)
            opened, refused = [], []

            def work(first):
                for number in range(first, first + 5):
                    try:
                        opened.append(crew.open(self.dir / str(number), **SMALL))
                    except plimsoll.Closed:
                        refused.append(number)

            workers = [threading.Thread(target=work, args=(5 * n,)) for n in range(4)]
            for worker in workers:
                worker.start()
            while not opened:
                time.sleep(0.0001)
            crew.close()
            for worker in workers:
                worker.join(60)
            self.assertEqual(len(opened) + len(refused), 20)
            for log in opened:
                log.append(b"x", ack="durable")
                log.close()


@unittest.skipUnless(hasattr(os, "fork"), "no fork here")
class Forks(Programs):
    def test_a_crew_is_its_parents_after_a_fork(self):
        said = self.run_program(
            """
import gc, warnings
warnings.simplefilter("ignore")
crew = plimsoll.Crew(threads=2)
log = crew.open(sys.argv[1] + "/1")
log.append(b"1")
pid = os.fork()
if pid == 0:
    signal.alarm(20)
    for call in (lambda: crew.open(sys.argv[1] + "/2"), crew.close, lambda: log.append(b"2")):
        try:
            call()
        except plimsoll.Invalid as error:
            assert "fork" in str(error), error
            print("told", end=" ")
    del crew, log
    gc.collect()
    with plimsoll.Crew(threads=1) as own, own.open(sys.argv[1] + "/2") as mine:
        print(mine.append(b"mine", ack="durable"), end=" ", flush=True)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
assert log.append(b"2", ack="durable") == 2
log.close()
with crew.open(sys.argv[1] + "/1") as again:
    print(list(again.read()))
"""
        )
        self.assertEqual(said, "told told told 1 [(1, b'1'), (2, b'2')]\n")


if __name__ == "__main__":
    unittest.main()
