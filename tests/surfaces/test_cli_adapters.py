"""`counterfoil adapters check`, as the author of an adapter uses it."""

import json

import pytest

from tests.support.commands import ESCAPE, Project

BENCH = '''\
"""A desk that keeps letters by key; how far it can be believed is for the check to say."""

import sqlite3
import tempfile
from pathlib import Path

import counterfoil as cf
from counterfoil.testing.adapter_bench import AdapterBench, Call

FLAWS = {flaws!r}


class Desk:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "desk.db"
        with self.reached() as desk:
            desk.execute("CREATE TABLE letter (key TEXT, run TEXT, digest TEXT, text TEXT)")

    def reached(self):
        return sqlite3.connect(self.path)

    def count(self):
        with self.reached() as desk:
            return desk.execute("SELECT count(*) FROM letter").fetchone()[0]

    def found(self, key, replayed=False):
        with self.reached() as desk:
            row = desk.execute(
                "SELECT rowid, run, digest, text FROM letter WHERE key = ?", (key,)
            ).fetchone()
        if row is None:
            return None
        return cf.Found(
            id=str(row[0]), run_id=row[1], digest=row[2], result=row[3], replayed=replayed
        )

    def effects(self):
        effects = cf.Effects()

        def find(key):
            return None if "forgets" in FLAWS else self.found(key)

        @effects.effect("desk.letter", level={level!r}, look_up=find)
        def letter(call: cf.Call, *, text: str) -> cf.Found:
            known = self.found(call.key, replayed=True)
            if known is not None and "doubles" not in FLAWS:
                if (known.run_id, known.digest) != (call.run_id, call.digest):
                    raise cf.IdempotencyConflictError("another letter lies under this key")
                return known
            with self.reached() as desk:
                row = (call.key, call.run_id, call.digest, text)
                desk.execute("INSERT INTO letter VALUES (?, ?, ?, ?)", row)
            return self.found(call.key)

        return effects

    def open(self):
        (adapter,) = self.effects().adapters(lambda: 1)
        return adapter


def fresh():
    desk = Desk()
    return AdapterBench(
        open=desk.open,
        write=lambda number: Call(kind="desk.letter", arguments={{"text": f"letter {{number}}"}}),
        count=desk.count,
        close=desk.folder.cleanup,
        garbled=(Call(kind="desk.letter", arguments={{"text": 1}}),),
        scope={{}},
    )


nothing = 1
'''


def bench(project: Project, *flaws: str, level: str = "deduplicating") -> None:
    text = BENCH.format(flaws=flaws, level=level)
    (project.folder / "desk_bench.py").write_text(text, encoding="utf-8")


def test_an_adapter_that_is_what_it_claims_is_shown_to_be(project: Project) -> None:
    bench(project)
    answer = project.started("adapters", "check", "desk_bench:fresh")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "desk.letter of adapter desk" in answer.stdout
    assert "level shown" in answer.stdout
    assert "Not tested: the bench cannot disturb" in answer.stdout
    assert answer.stdout.endswith("Held: desk.letter is deduplicating.\n")
    assert ESCAPE not in answer.stdout


def test_the_same_is_told_to_programs(project: Project) -> None:
    bench(project)
    words = ("adapters", "check", "desk_bench:fresh", "--second-deaths", "1", "--json")
    facts = json.loads(project.started(*words).stdout)
    assert (facts["claimed"], facts["shown"], facts["holds"]) == ("deduplicating",) * 2 + (True,)
    assert [each for each in facts["clauses"] if not each["kept"]] == []
    assert facts["crashes"] > 20
    assert facts["double_crashes"] > facts["crashes"]
    assert "a lost answer is no refusal" in facts["untested"]


@pytest.mark.parametrize(
    ("flaw", "sentence"),
    [
        ("doubles", "a repeated call gets the first receipt"),
        ("forgets", "what was done is found"),
    ],
)
def test_an_adapter_that_claims_too_much_is_told_what_it_breaks(
    project: Project, flaw: str, sentence: str
) -> None:
    bench(project, flaw)
    answer = project.started("adapters", "check", "desk_bench:fresh")
    assert answer.returncode == 3
    assert sentence in answer.stdout
    assert "Not kept" in answer.stdout
    assert "desk.letter claims deduplicating and shows" in answer.stderr


def test_a_double_effect_is_found_by_the_crash_drill(project: Project) -> None:
    bench(project, "doubles", "forgets")
    answer = project.started("adapters", "check", "desk_bench:fresh")
    assert answer.returncode == 3
    assert "Found by the crash drill" in answer.stdout
    assert "effects beyond the unharmed run" in " ".join(answer.stdout.split())
    assert "shows no level" in answer.stderr


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("desk_bench", "is not MODULE:NAME"),
        ("nowhere:fresh", "cannot be imported"),
        ("desk_bench:nothing", "is no function that returns a bench"),
        ("desk_bench:Desk", "returns no AdapterBench"),
    ],
)
def test_what_is_no_bench_is_refused(project: Project, name: str, sentence: str) -> None:
    bench(project)
    answer = project.started("adapters", "check", name)
    assert answer.returncode == 2
    assert sentence in " ".join(answer.stderr.split())
