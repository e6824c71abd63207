"""Reviewers at the command line: what they see, what they sign, and what is refused."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from counterfoil import Call, Effects, Found, FrozenError, Policy, Task, TerminalError
from counterfoil.cli import app
from counterfoil.compose import open_keeper

TASK = Task(id="pay", policy=Policy(permissions=("bank.pay",)))
RUN = "pay-1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bank:
    """A bank that garbles its first payment, and a project that pays through it."""

    project: Path
    elsewhere: Path
    held: dict[str, Found] = field(default_factory=dict)

    @property
    def effects(self) -> Effects:
        """The one effect of the bank."""
        declared = Effects()

        def pay(call: Call, *, cents: int) -> Found:
            if not self.held:
                self.held[call.key] = Found(id="payment 1", digest="i1:other", result=cents)
                raise ConnectionError
            return self.held.setdefault(call.key, Found(id="payment 2", digest=call.digest))

        declared.effect("bank.pay", level="deduplicating", look_up=self.held.get)(pay)
        return declared

    def work(self) -> None:
        """Run the program."""
        with (
            open_keeper(self.project, effects=self.effects) as keeper,
            keeper.run(TASK, RUN) as session,
        ):
            session.do("bank.pay", cents=82)

    def call(self, *words: str, exit_code: int = 0) -> dict[str, Any]:
        """Run a command with --json; return what it printed."""
        more = () if words[0] in ("keygen", "sign") else ("--project", str(self.project))
        answer = CliRunner().invoke(app, [*words, *more, "--json"])
        assert answer.exit_code == exit_code, answer.output
        read: dict[str, Any] = json.loads(answer.stderr if exit_code else answer.stdout)
        return read

    def key(self, name: str, role: str) -> str:
        """Make a key and have it trusted; return its path."""
        file = str(self.elsewhere / f"{name}.pem")
        public = self.call("keygen", file)["public"]
        self.call("trust", "add", name, "--role", role, "--public", public)
        return file

    def decide(self, key: str, verdict: str, *more: str, exit_code: int = 0) -> dict[str, Any]:
        """Decide on the open case."""
        words = ("review", "decide", RUN, "--verdict", verdict, "--key", key, "--yes", *more)
        return self.call(*words, exit_code=exit_code)


@pytest.fixture
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bank:
    for name in ("config", "state"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    folders = [tmp_path / name for name in ("project", "elsewhere", "config", "state")]
    for folder in folders:
        folder.mkdir(mode=0o700)
    assert CliRunner().invoke(app, ["init", str(folders[0])]).exit_code == 0
    made = Bank(project=folders[0], elsewhere=folders[1])
    with pytest.raises(FrozenError):
        made.work()
    return made


def test_a_case_marks_what_differs(bank: Bank) -> None:
    sides = bank.call("review", "show", RUN)["sides"]
    assert [side["field"] for side in sides if side["differs"]] == ["receipt.digest"]


def test_a_replan_pays_under_another_key(bank: Bank) -> None:
    bank.decide(bank.key("rita", "reviewer"), "replan")
    bank.work()
    assert [found.id for found in bank.held.values()] == ["payment 1", "payment 2"]


def test_a_decision_from_another_machine_counts(bank: Bank) -> None:
    key = bank.key("rita", "reviewer")
    file = str(bank.elsewhere / "case.json")
    bank.call("review", "show", RUN, "--export", file)
    signed = bank.call("sign", file, "--key", key, "--verdict", "abort", "--yes")
    bank.call("submit", signed["output"])
    with pytest.raises(TerminalError, match="receipt_conflict_reviewed"):
        bank.work()


def test_a_closed_case_is_listed_with_its_decision(bank: Bank) -> None:
    bank.decide(bank.key("rita", "reviewer"), "replan", "--note", "asked the bank")
    bank.work()
    (row,) = bank.call("review", "list", "--closed")["cases"]
    assert (row["open"], row["signer"], row["decision"]) == (
        False,
        "rita",
        "replan: asked the bank",
    )


def test_a_closed_case_is_exported_with_the_proof_of_its_end(bank: Bank) -> None:
    bank.decide(bank.key("rita", "reviewer"), "replan")
    bank.work()
    (row,) = bank.call("review", "list", "--closed")["cases"]
    file = bank.elsewhere / "case.json"
    bank.call("review", "show", RUN, "--event", str(row["opened_event"]), "--export", str(file))
    proof = bank.elsewhere / "proof.json"
    closed = json.loads(file.read_bytes())["closed"]
    proof.write_text(json.dumps(closed, separators=(",", ":")), encoding="utf-8")
    assert bank.call("check-proof", str(proof))["outcome"] == "resolved"


def test_an_approver_decides_no_case(bank: Bank) -> None:
    refused = bank.decide(bank.key("ada", "approver"), "replan", exit_code=3)["error"]
    assert "the reviewers of this project have none" in refused["message"]


def test_a_verdict_that_does_not_answer_the_case_is_refused_at_the_door(bank: Bank) -> None:
    refused = bank.decide(bank.key("rita", "reviewer"), "confirm_absent", exit_code=3)["error"]
    assert "this case is intent_conflict" in refused["message"]


def test_no_program_goes_on_before_a_decision(bank: Bank) -> None:
    with pytest.raises(FrozenError):
        bank.work()
    assert len(bank.held) == 1
