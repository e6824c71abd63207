"""Approvers and reviewers at the command line: from a key to an effect, and each refusal."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from counterfoil import ApprovalError, Policy, Task
from counterfoil.cli import app
from counterfoil.compose import open_keeper

TASK = Task(
    id="notes",
    policy=Policy(
        permissions=("files.write",),
        scope={"files": {"paths": (".",)}},
        approval_kinds=("files.write",),
    ),
)
RUN = "notes-1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Desk:
    """A project with a run that waits, and a folder that stands for another machine."""

    project: Path
    elsewhere: Path

    def call(self, *words: str, exit_code: int = 0) -> dict[str, Any]:
        """Run a command with --json in the project; return what it printed."""
        with_project = words if words[0] in ("keygen", "sign") else (*words, "--project", self.at)
        return _called(*with_project, exit_code=exit_code)

    @property
    def at(self) -> str:
        return str(self.project)

    @property
    def note(self) -> Path:
        return self.project / "out" / "note.txt"

    def key(self, name: str, role: str, *more: str) -> str:
        """Make a key elsewhere and have it trusted here; return its path."""
        file = str(self.elsewhere / f"{name}.pem")
        made = self.call("keygen", file)
        self.call("trust", "add", name, "--role", role, "--public", made["public"], *more)
        return file

    def propose(self, content: str = "two\n", run: str = RUN) -> None:
        """Have the program propose, and leave the run waiting."""
        with (
            open_keeper(self.project) as keeper,
            keeper.run(TASK, run) as session,
            pytest.raises(ApprovalError, match="waits for a person"),
        ):
            session.do("files.write", path="note.txt", content=content)

    def go_on(self, content: str = "two\n") -> None:
        """Start the program again."""
        with open_keeper(self.project) as keeper, keeper.run(TASK, RUN) as session:
            session.do("files.write", path="note.txt", content=content)


def _called(*words: str, exit_code: int) -> dict[str, Any]:
    answer = CliRunner().invoke(app, [*words, "--json"])
    assert answer.exit_code == exit_code, answer.output
    read: dict[str, Any] = json.loads(answer.stderr if exit_code else answer.stdout)
    return read


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    for name in ("config", "state"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(_folder(tmp_path / name)))
    project, elsewhere = _folder(tmp_path / "project"), _folder(tmp_path / "elsewhere")
    (project / "counterfoil.toml").write_text(
        '[project]\nid = "notes-id"\n[adapters.files]\nroot = "out"\n', encoding="utf-8"
    )
    _folder(project / "out").joinpath("note.txt").write_text("one\n", encoding="utf-8")
    made = Desk(project=project, elsewhere=elsewhere)
    assert CliRunner().invoke(app, ["init", str(project)]).exit_code == 0
    return made


def _folder(path: Path) -> Path:
    path.mkdir(mode=0o700)
    return path


def test_what_is_signed_on_another_machine_is_what_happens(desk: Desk) -> None:
    key = desk.key("ada", "approver")
    desk.propose()
    request = desk.elsewhere / "request.json"
    desk.call("requests", RUN, "--export", str(request))
    signed = desk.call("sign", str(request), "--key", key, "--yes")
    kept = desk.call("submit", signed["output"])
    desk.go_on()
    assert (kept["signer"], desk.note.read_text(encoding="utf-8")) == ("ada", "two\n")


def test_nothing_happens_before_somebody_signs(desk: Desk) -> None:
    desk.key("ada", "approver")
    desk.propose()
    with pytest.raises(ApprovalError, match="0 of 1 approvals"):
        desk.go_on()
    assert desk.note.read_text(encoding="utf-8") == "one\n"


def test_a_request_shows_what_would_change(desk: Desk) -> None:
    desk.propose()
    shown = desk.call("requests", RUN)["request"]
    assert shown["preview"].splitlines()[-2:] == ["-one", "+two"]


def test_a_list_of_requests_names_the_run(desk: Desk) -> None:
    desk.propose()
    assert [row["run"] for row in desk.call("requests")["requests"]] == [RUN]


def test_a_denial_reaches_the_program(desk: Desk) -> None:
    key = desk.key("ada", "approver")
    desk.propose()
    desk.call("deny", RUN, "--key", key, "--yes", "--note", "not today")
    with pytest.raises(ApprovalError, match="ada denied it: not today"):
        desk.go_on()


def test_an_approval_that_was_taken_back_lets_nothing_happen(desk: Desk) -> None:
    key = desk.key("ada", "approver")
    desk.propose()
    desk.call("approve", RUN, "--key", key, "--yes")
    desk.call("revoke", RUN, "--key", key, "--yes")
    with pytest.raises(ApprovalError, match="0 of 1 approvals"):
        desk.go_on()


def test_an_approval_that_counts_is_not_prolonged(desk: Desk) -> None:
    key = desk.key("ada", "approver")
    desk.propose()
    desk.call("approve", RUN, "--key", key, "--yes")
    refused = desk.call("refresh", RUN, "--key", key, "--yes", exit_code=3)["error"]
    assert "counts until" in refused["message"]


def test_recover_executes_what_was_approved(desk: Desk, tmp_path: Path) -> None:
    key = desk.key("ada", "approver")
    desk.propose()
    task = _task_file(tmp_path)
    waits = CliRunner().invoke(
        app, ["recover", RUN, "--task", task, "--project", desk.at, "--json"]
    )
    desk.call("approve", RUN, "--key", key, "--yes")
    done = desk.call("recover", RUN, "--task", task)
    assert (waits.exit_code, json.loads(waits.stdout)["outcome"], done["outcome"]) == (
        3,
        "waits_for_approval",
        "executed",
    )


def _task_file(folder: Path) -> str:
    file = folder / "notes.toml"
    file.write_text(
        'id = "notes"\n[policy]\npermissions = ["files.write"]\napproval_kinds = ["files.write"]\n'
        '[policy.scope.files]\npaths = ["."]\n',
        encoding="utf-8",
    )
    return str(file)


def _by_a_reviewer(desk: Desk) -> str:
    key = desk.key("rita", "reviewer")
    return _signed(desk, key, "--signer", "rita")


def _by_a_stranger(desk: Desk) -> str:
    key = str(desk.elsewhere / "eve.pem")
    desk.call("keygen", key)
    return _signed(desk, key, "--signer", "ada")


def _by_one_whom_nobody_trusts_any_more(desk: Desk) -> str:
    signed = _signed(desk, desk.key("ada", "approver"))
    desk.call("trust", "revoke", "ada")
    return signed


def _out_of_scope(desk: Desk) -> str:
    return _signed(desk, desk.key("ada", "approver", "--kind", "files.delete"))


def _under_another_name(desk: Desk) -> str:
    return _signed(desk, desk.key("ada", "approver"), "--signer", "bob")


def _of_another_run(desk: Desk) -> str:
    key = desk.key("ada", "approver")
    desk.propose(run="notes-2")
    file = desk.elsewhere / "request.json"
    desk.call("requests", RUN, "--export", str(file))
    request = json.loads(file.read_bytes())
    request["request"]["run"] = "notes-2"
    file.write_text(json.dumps(request), encoding="utf-8")
    return str(desk.call("sign", str(file), "--key", key, "--yes")["output"])


def _garbage(desk: Desk) -> str:
    file = desk.elsewhere / "statement"
    file.write_bytes(b"{}")
    return str(file)


def _signed(desk: Desk, key: str, *more: str) -> str:
    file = desk.elsewhere / "request.json"
    desk.call("requests", RUN, "--export", str(file))
    return str(desk.call("sign", str(file), "--key", key, "--yes", *more)["output"])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(_by_a_reviewer, "no approver has key", id="by a reviewer"),
        pytest.param(_by_a_stranger, "no approver has key", id="by a stranger"),
        pytest.param(_by_one_whom_nobody_trusts_any_more, "was revoked at", id="by a revoked one"),
        pytest.param(
            _out_of_scope, "may decide on kind files.delete, not 'files.write'", id="out of scope"
        ),
        pytest.param(
            _under_another_name, "names 'bob', its key is ada's", id="under another's name"
        ),
        pytest.param(_of_another_run, "the approval is for", id="of another run's request"),
        pytest.param(_garbage, "statement", id="no statement at all"),
    ],
)
def test_the_door_refuses_a_statement(
    desk: Desk, make: Callable[[Desk], str], message: str
) -> None:
    desk.propose()
    refused = desk.call("submit", make(desk), exit_code=3)["error"]
    assert (refused["name"], message in refused["message"]) == ("ApprovalError", True), refused


def test_a_file_that_shows_something_else_than_is_signed_is_refused(desk: Desk) -> None:
    key = desk.key("ada", "approver")
    desk.propose()
    file = desk.elsewhere / "request.json"
    desk.call("requests", RUN, "--export", str(file))
    request = json.loads(file.read_bytes())
    request["request"]["intent"]["arguments"]["content"] = "harmless\n"
    file.write_text(json.dumps(request), encoding="utf-8")
    refused = desk.call("sign", str(file), "--key", key, "--yes", exit_code=2)["error"]
    assert "what it shows has" in refused["message"]


def test_nobody_signs_unseen_where_nobody_can_be_asked(desk: Desk) -> None:
    key = desk.key("ada", "approver")
    desk.propose()
    refused = desk.call("approve", RUN, "--key", key, exit_code=2)["error"]
    assert "nothing was signed" in refused["message"]


def test_an_unknown_key_is_named_before_anything_is_signed(desk: Desk) -> None:
    key = desk.key("rita", "reviewer")
    desk.propose()
    refused = desk.call("approve", RUN, "--key", key, "--yes", exit_code=3)["error"]
    assert "the approvers of this project have none" in refused["message"]


def test_an_encrypted_key_signs_with_its_passphrase(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTERFOIL_PASSPHRASE", "correct horse")
    key = str(desk.elsewhere / "ada.pem")
    made = desk.call("keygen", key, "--passphrase")
    desk.call("trust", "add", "ada", "--role", "approver", "--public", made["public"])
    desk.propose()
    assert desk.call("approve", RUN, "--key", key, "--yes")["signer"] == "ada"


def test_control_characters_of_a_run_do_not_reach_the_terminal(desk: Desk) -> None:
    desk.propose("\x1b[2Jtwo\n")
    answer = CliRunner().invoke(app, ["requests", RUN, "--project", desk.at])
    assert "\x1b" not in answer.output


def test_a_migration_asks_again_under_the_policy_that_holds(desk: Desk, tmp_path: Path) -> None:
    key = desk.key("rita", "reviewer")
    desk.propose()
    desk.call("approve", RUN, "--key", desk.key("ada", "approver"), "--yes")
    task = Path(_task_file(tmp_path))
    text = task.read_text(encoding="utf-8").replace("[policy]\n", '[policy]\nversion = "2"\n')
    task.write_text(text, encoding="utf-8")
    desk.call("migrate", RUN, "--task", str(task), "--key", key, "--yes")
    with open_keeper(desk.project) as keeper, keeper.run(task, RUN) as session:
        asked = session.request
        with pytest.raises(ApprovalError, match="0 of 1 approvals"):
            session.settle()
    assert asked is not None
    assert asked.policy_version == "2"


def test_a_trust_file_that_others_may_write_to_is_refused(desk: Desk) -> None:
    desk.key("ada", "approver")
    file = Path(desk.call("trust", "list")["file"])
    file.chmod(0o620)
    refused = desk.call("requests", exit_code=2)["error"]
    assert ("others may write" in refused["message"], "chmod 644" in refused["next"]) == (
        True,
        True,
    )


def test_a_trust_file_inside_the_project_is_refused(desk: Desk) -> None:
    with (desk.project / "counterfoil.toml").open("a", encoding="utf-8") as settings:
        settings.write('[trust]\nfile = "trust.json"\n')
    refused = desk.call("requests", exit_code=2)["error"]
    assert "lies inside the project" in refused["message"]
