"""The git adapter under test: commits within a repository, and pushes to a bare remote."""

from collections.abc import Callable
from pathlib import Path

from counterfoil.adapters.git.kinds import kinds
from counterfoil.core.receipt import Receipt
from counterfoil.core.words import Json
from counterfoil.ports import Adapter, Operation
from counterfoil.testing.adapter_bench import AdapterBench, Call, Trait
from counterfoil.testing.saboteur_adapters import Passing
from tests.support.benches import Candidate
from tests.support.git_scene import LOCAL, MAIN, RUNNER, SCOPE, WORK, Scene, commit, git, push

TRAITS = frozenset((Trait.DISTURBS, Trait.CHECKS_PRESTATE, Trait.LOSES_ANSWERS, Trait.CUTS_OFF))
Wrap = Callable[[Adapter], Adapter]


class Line(Passing):
    """The way to an adapter, on which one answer can be lost."""

    def __init__(self, inner: Adapter, lost: list[bool]) -> None:
        super().__init__(inner)
        self._lost = lost

    def execute(self, operation: Operation) -> Receipt:
        receipt = super().execute(operation)
        if self._lost:
            self._lost.clear()
            raise ConnectionError("the answer was lost")
        return receipt


def _as_is(adapter: Adapter) -> Adapter:
    return adapter


def commit_bench(place: Path, wrap: Wrap = _as_is) -> AdapterBench:
    """Return a fresh repository that is committed to."""
    scene, lost = Scene(place), list[bool]()

    def disturb() -> None:
        theirs = git(scene.root, "commit-tree", f"{WORK}^{{tree}}", "-p", WORK, "-m", "theirs")
        git(scene.root, "update-ref", WORK, theirs)

    return AdapterBench(
        open=lambda: wrap(Line(scene.open(), lost)),
        write=lambda number: Call(kind="git.commit", arguments=commit(scene, number)),
        count=scene.commits,
        close=lambda: None,
        reads=_reads(scene),
        garbled=_garbled(scene),
        scope=LOCAL,
        traits=TRAITS,
        disturb=disturb,
        lose_answer=lambda: lost.append(True),
        cut_off=lambda: _gone(scene.root),
    )


def push_bench(place: Path, wrap: Wrap = _as_is) -> AdapterBench:
    """Return a fresh bare remote that is pushed to."""
    scene, lost = Scene(place), list[bool]()

    def disturb() -> None:
        scene.teammate_pushes()

    return AdapterBench(
        open=lambda: wrap(Line(scene.open(), lost)),
        write=lambda number: Call(kind="git.push", arguments=push(scene, number)),
        count=lambda: scene.commits(scene.remote),
        close=lambda: None,
        reads=(
            Call(kind="git.read", arguments={"ref": WORK, "remote": "origin"}),
            Call(
                kind="git.check",
                arguments={"ref": WORK, "remote": "origin", "target": scene.first},
            ),
        ),
        garbled=_garbled(scene),
        scope=SCOPE,
        traits=TRAITS,
        disturb=disturb,
        lose_answer=lambda: lost.append(True),
        cut_off=lambda: _gone(scene.remote),
    )


def candidates() -> tuple[Candidate, ...]:
    """Return the adapter, by what it writes to."""
    specs = {spec.name: spec for spec in kinds(20_000)}
    return (
        Candidate(name="git commit", spec=specs["git.commit"], traits=TRAITS, bench=commit_bench),
        Candidate(name="git push", spec=specs["git.push"], traits=TRAITS, bench=push_bench),
    )


def _gone(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


def _reads(scene: Scene) -> tuple[Call, ...]:
    return (
        Call(kind="git.read", arguments={"ref": WORK}),
        Call(kind="git.read", arguments={"ref": MAIN, "path": "app.py"}),
        Call(kind="git.read", arguments={"ref": MAIN, "path": "nowhere"}),
        Call(kind="git.check", arguments={"ref": WORK, "target": scene.first}),
    )


def _garbled(scene: Scene) -> tuple[Call, ...]:
    good, sent = commit(scene), push(scene)
    bad_commits: tuple[dict[str, Json], ...] = (
        *({name: value for name, value in good.items() if name != gone} for gone in good),
        *(
            {**good, "ref": ref}
            for ref in (
                "work",
                "HEAD",
                "refs/heads/",
                "refs/tags/v1",
                "refs/counterfoil/receipts/aa",
                "refs/heads/../x",
                "refs/heads/a..b",
                "refs/heads/a.lock",
                "refs/heads/.a",
                "refs/heads/-a",
                "refs/heads/a b",
                "refs/heads/a@{1}",
                "refs/heads/a^",
                "refs/heads/a:b",
                "refs/heads/a*",
                "refs/heads//a",
                "refs/heads/a\n",
                "refs/heads/" + "a" * 200,
                1,
            )
        ),
        *({**good, "parent": parent} for parent in ("HEAD", "0" * 40, "abc", None, "--all")),
        *(
            {**good, "changes": changes}
            for changes in (
                {},
                {".git/config": ""},
                {"a/.GIT/hooks/post-commit": ""},
                {"git~1/config": ""},
                {".git /config": ""},
                {"../a": ""},
                {"/a": ""},
                {"a//b": ""},
                {"a\n": ""},
                {"a": 1},
                {"a": "", "a/b": ""},
                [],
            )
        ),
        {**good, "message": ""},
        {**good, "message": "a\x00b"},
        {**good, "colour": "red"},
        {**good, "executable": ["nowhere"]},
        {**good, "author": {**RUNNER, "name": "A <b>"}},
        {**good, "author": {**RUNNER, "name": "A\nparent 0"}},
        {**good, "author": {**RUNNER, "date": "yesterday"}},
        {**good, "author": {**RUNNER, "date": "2026-01-02T03:04:05"}},
        {**good, "author": {**RUNNER, "date": "1969-01-02T03:04:05+00:00"}},
        {**good, "expected": "HEAD"},
    )
    bad_pushes: tuple[dict[str, Json], ...] = (
        {**sent, "remote": ""},
        {**sent, "expected": sent["target"]},
        {**sent, "target": "main"},
        {**sent, "force": "yes"},
        {**sent, "ref": "refs/counterfoil/receipts/aa"},
    )
    return (
        *(Call(kind="git.commit", arguments=arguments) for arguments in bad_commits),
        *(Call(kind="git.push", arguments=arguments) for arguments in bad_pushes),
        Call(kind="git.tag", arguments={"ref": "refs/tags/v1"}),
        Call(kind="git.tag", arguments={"ref": "refs/tags/v1", "target": "HEAD"}),
        Call(
            kind="git.tag",
            arguments={"ref": "refs/tags/v1", "target": scene.first, "message": "no tagger"},
        ),
        Call(kind="git.branch", arguments={"ref": "refs/heads/a", "target": scene.first}),
        Call(kind="git.read", arguments={}),
        Call(kind="git.read", arguments={"ref": MAIN, "path": "../x"}),
        Call(kind="git.check", arguments={"ref": MAIN, "target": "HEAD"}),
    )
