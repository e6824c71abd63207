"""A worker dies while its command runs; the next one finds how it ended, and runs it once."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import counterfoil as cf
from counterfoil.adapters.shell import Command, open_shell

SITE = Path("site")
STARTED = Path(".site.counterfoil-shell/attempts/1/start")

COMMANDS = (
    Command(
        name="build",
        stages=(
            ("sh", "-c", 'echo "building $1"; sleep 1; echo "$1" >> built', "sh", "{target}"),
            ("tee", "build.log"),
        ),
        patterns={"target": "[a-z-]+"},
    ),
    Command(
        name="check",
        stages=(("grep", "-q", "-x", "--", "{target}", "built"),),
        patterns={"target": "[a-z-]+"},
        risk=cf.Risk.VERIFICATION,
    ),
)

task = cf.Task(
    id="release",
    policy=cf.Policy(
        permissions=("shell.build", "shell.check"),
        scope={"shell": {"commands": ("build", "check"), "paths": (".",)}},
    ),
    verifier=cf.Verification(kind="shell.check", arguments={"target": "docs"}),
)


def work() -> None:
    shell = open_shell(SITE, COMMANDS, now_ms=lambda: time.time_ns() // 1_000_000)
    with cf.open(adapters=(shell,)) as keeper, keeper.run(task, run_id="release-1") as run:
        result = run.do("shell.build", target="docs")
        print("adopted:", result["stages"], result["stdout"].strip(), flush=True)
        try:
            run.do("shell.build", target="--help")
        except cf.ContractError as error:
            print("refused:", error.message, flush=True)
        run.verify()
        run.finish()
        print("the run is", run.state.phase.value, flush=True)


def start() -> multiprocessing.Process:
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    return process


if __name__ == "__main__":
    SITE.mkdir()
    first = start()
    while first.is_alive() and not STARTED.exists():
        time.sleep(0.01)
    os.kill(first.pid or 0, signal.SIGKILL)  # the command has started, and has not ended
    first.join()
    second = start()
    second.join()
    print(len((SITE / "built").read_text().splitlines()), "build in all")

# output:
# adopted: [{'code': 0}, {'code': 0}] building docs
# refused: the value '--help' looks like an option
# the run is completed
# 1 build in all
