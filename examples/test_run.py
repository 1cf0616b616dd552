"""Tests of examples/run: python3 -m unittest discover -s examples. Nothing is mounted."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

from cases import BREAKS, EXAMPLES, KEEPS, MAY_LOSE, NOTHING, Case, Example, needs_module
from outcome import judge, kind, table

HERE = pathlib.Path(__file__).resolve().parent
loader = importlib.machinery.SourceFileLoader("run", str(HERE / "run"))
run = importlib.util.module_from_spec(importlib.util.spec_from_loader("run", loader))
loader.exec_module(run)

# Stands for `plimsoll`: what it finds, also on a disk that lies, is in the environment.
FAKE = """#!{python}
import json, os, pathlib, sys
words = sys.argv[2:]
if words[0] == "record":
    place = pathlib.Path(words[words.index("-o") + 1])
    if place.name == os.environ.get("FAILING"):
        sys.exit(7)
    place.mkdir(parents=True)
    for filesystem in words[words.index("--fs") + 1].split(","):
        (place / (filesystem + ".trace")).write_text("")
    sys.exit(int(os.environ.get("RECORDED", 0)))
lies = "--lying" in words
findings = json.loads(os.environ["LYING" if lies else "FOUND"])
suffix = ".lying.states.jsonl" if lies else ".states.jsonl"
with pathlib.Path(words[1]).with_suffix(suffix).open("w") as file:
    for finding in [{{"question": 1}}, *findings]:
        file.write(json.dumps(finding) + "\\n")
sys.exit(int(os.environ.get("EXPLORED", 0)))
"""


def finding(verdict, said="", **more):
    return {"verdict": verdict, "said": said, "state": "point=1,mode=durable", **more}


OK = finding("ok")
LOST = finding("lost", "5 payments were promised, 4 are there")
WRONG = finding("lost", "integrity_check: page 3 is never used")
REFUSED = finding("refused", "it does not open")


class Judging(unittest.TestCase):
    def surprises(self, promise, *findings, **more):
        return judge("x/y", Case("y", promise, known=more.get("known", "")), "ext4", findings,
                     more.get("lying")).surprises

    def test_what_is_promised_to_be_kept_may_not_be_lost(self):
        self.assertEqual(self.surprises(KEEPS, OK, OK), [])
        self.assertEqual(self.surprises(KEEPS, OK, LOST, LOST), ["2 lost"])

    def test_who_may_lose_the_last_may_not_be_damaged_nor_refuse_to_open(self):
        self.assertEqual(self.surprises(MAY_LOSE, OK, LOST), [])
        damaged = self.surprises(MAY_LOSE, OK, LOST, WRONG, REFUSED)
        self.assertEqual(damaged, ["1 wrong", "1 refused"])

    def test_where_nothing_is_promised_no_damage_is_a_surprise(self):
        self.assertEqual(self.surprises(NOTHING, OK, LOST, WRONG, REFUSED), [])

    def test_a_check_that_breaks_is_a_surprise_whatever_is_promised(self):
        for promise in (KEEPS, MAY_LOSE, NOTHING):
            self.assertEqual(self.surprises(promise, OK, finding("broken")), ["1 broken"])

    def test_a_control_in_which_nothing_is_found_is_a_surprise(self):
        self.assertEqual(self.surprises(BREAKS, OK, LOST), [])
        self.assertEqual(self.surprises(BREAKS, OK), ["nothing is broken, and must be"])

    def test_no_states_are_no_pass(self):
        self.assertEqual(self.surprises(KEEPS), ["no states"])

    def test_a_check_that_finds_nothing_on_a_disk_that_lies_is_a_surprise(self):
        blind = ["the check finds nothing on a disk that lies"]
        self.assertEqual(self.surprises(KEEPS, OK, lying=[OK, LOST]), [])
        self.assertEqual(self.surprises(KEEPS, OK, lying=[OK]), blind)
        self.assertEqual(self.surprises(KEEPS, OK, lying=[]), blind)
        self.assertEqual(self.surprises(KEEPS, OK, lying=[OK, finding("reported")]), [])

    def test_that_nothing_could_be_checked_on_a_disk_that_lies_does_not_show_that_a_check_looks(self):
        lying = [OK, finding("not-mounted"), finding("broken")]
        self.assertEqual(self.surprises(KEEPS, OK, lying=lying),
                         ["the check finds nothing on a disk that lies"])

    def test_what_is_known_is_said_and_is_no_surprise(self):
        outcome = judge("x/y", Case("y", KEEPS, known="refused"), "ext4", [OK, REFUSED])
        self.assertEqual((outcome.surprises, outcome.known), ([], "refused"))
        self.assertIn("refused: known, see docs/crash-testing.md", table([outcome]))
        self.assertEqual(self.surprises(KEEPS, OK, REFUSED, LOST, known="refused"), ["1 lost"])

    def test_what_is_known_of_a_new_database_is_a_surprise_once_something_was_promised(self):
        late = finding("refused", "it does not open", last_mark="7", state="point=9,mode=durable")
        outcome = judge("x/y", Case("y", KEEPS, known="refused"), "ext4", [REFUSED, late])
        self.assertEqual((outcome.surprises, outcome.counts), (["1 refused"], {"refused": 2}))
        self.assertEqual(outcome.states, {"refused": "point=9,mode=durable"})
        self.assertEqual(self.surprises(MAY_LOSE, OK, late, known="refused"), [])

    def test_a_loss_is_told_from_damage_by_what_the_check_says(self):
        self.assertEqual([kind(found) for found in (OK, LOST, WRONG, REFUSED)],
                         ["ok", "lost", "wrong", "refused"])
        one = finding("lost", "version 7 was promised, version 6 is there")
        self.assertEqual(kind(one), "lost")


class Running(unittest.TestCase):
    """The whole program, with a stand-in for `plimsoll`."""

    def run_with(self, example, found, lying=(LOST,), **environment):
        with tempfile.TemporaryDirectory() as place:
            fake = pathlib.Path(place, "plimsoll")
            fake.write_text(FAKE.format(python=sys.executable))
            fake.chmod(0o755)
            environment |= {"PLIMSOLL": str(fake)}
            environment |= {"FOUND": json.dumps(found), "LYING": json.dumps(lying)}
            out, news = io.StringIO(), io.StringIO()
            with mock.patch.dict(os.environ, environment), \
                    mock.patch.object(os, "geteuid", lambda: 0), \
                    mock.patch.object(run, "EXAMPLES", (example,)), \
                    contextlib.redirect_stdout(out), contextlib.redirect_stderr(news):
                status = run.main(["--fs", "ext4,xfs", "-o", str(pathlib.Path(place, "out"))])
            return status, out.getvalue(), news.getvalue()

    def test_a_surprise_exits_with_1_and_says_how_to_look_at_it(self):
        example = Example("sqlite", (Case("wal-full", KEEPS),))
        status, out, news = self.run_with(example, [OK, LOST])
        self.assertEqual((status, out.count("SURPRISE: 1 lost")), (1, 2))
        self.assertIn("disk shrink", news)

    def test_what_is_as_promised_exits_with_0(self):
        example = Example("sqlite", (Case("wal-full", KEEPS),))
        status, table_of_it, _ = self.run_with(example, [OK, OK])
        self.assertEqual((status, table_of_it.count("as promised")), (0, 2))

    def test_what_is_not_installed_is_said_and_is_no_pass(self):
        missing = lambda: "no lmdb: pip install lmdb"
        example = Example("lmdb", (Case("sync", KEEPS),), missing)
        status, _, news = self.run_with(example, [OK])
        self.assertEqual(status, 3)
        self.assertIn("SKIPPED: lmdb: no lmdb: pip install lmdb", news)

    def test_what_was_tested_in_no_way_is_a_surprise(self):
        example = Example("sqlite", (Case("wal-full", KEEPS),))
        status, table_of_it, _ = self.run_with(example, [OK, OK], EXPLORED="3")
        self.assertEqual((status, "no states" in table_of_it), (1, True))

    def test_a_workload_that_fails_is_an_error(self):
        example = Example("sqlite", (Case("wal-full", KEEPS),))
        status, _, news = self.run_with(example, [OK], RECORDED="7")
        self.assertEqual((status, "sqlite/wal-full cannot be recorded" in news), (2, True))

    def test_a_workload_that_fails_does_not_hide_what_the_others_found(self):
        example = Example("sqlite", (Case("delete-full", KEEPS), Case("wal-full", KEEPS)))
        status, out, _ = self.run_with(example, [LOST], FAILING="delete-full")
        self.assertEqual((status, out.count("sqlite/wal-full")), (1, 2))

    def test_a_plimsoll_that_is_interrupted_ends_it(self):
        example = Example("sqlite", (Case("wal-full", KEEPS),))
        for status in ("130", "143"):
            with self.assertRaises(run.Interrupted) as ended:
                self.run_with(example, [OK], RECORDED=status)
            self.assertEqual(ended.exception.args, (int(status),))

    def test_a_name_that_is_not_there_is_an_error(self):
        with self.assertRaises(run.CannotRun):
            run.choose(["sqlite/wal"])
        chosen = [case.name for _, case in run.choose(["replace", "sqlite/wal-full"])]
        self.assertEqual(chosen, ["none", "file", "full", "wal-full"])


class Folders(unittest.TestCase):
    def test_a_folder_of_ours_is_no_module_that_is_installed(self):
        self.assertIn("pip install x", needs_module("sqlite", "x")())
        self.assertEqual(needs_module("sqlite3", "x")(), "")

    def test_each_example_has_its_programs_and_says_what_is_promised_where(self):
        for example in EXAMPLES:
            folder = HERE / example.name
            heads = (folder / "workload.py", folder / "main.go")
            head = next(path for path in heads if path.exists()).read_text().split("import")[0]
            self.assertRegex(head, r"(?s)Promised.*https?://", example.name)


if __name__ == "__main__":
    unittest.main()
