"""A worker dies between an effect and its record; the next one asks before it acts."""

import multiprocessing
import os
import signal
from pathlib import Path

import counterfoil as cf

MAILBOX = Path("mailbox")  # stands for a mail service that keeps messages by key


def find_mail(key: str) -> str | None:
    return (MAILBOX / key).read_text() if (MAILBOX / key).exists() else None


@cf.effect("mail.send", level="deduplicating", look_up=find_mail)
def send_mail(call: cf.Call, *, to: str) -> str:
    (MAILBOX / call.key).write_text(to)
    with Path("sent.log").open("a") as log:
        log.write(f"{to}\n")
    if os.environ.get("DIE_AFTER_SENDING"):
        os.kill(os.getpid(), signal.SIGKILL)  # sent, and nobody has written that down
    return to


task = cf.Task(id="invite", policy=cf.Policy(permissions=("mail.send",)))


def work() -> None:
    with cf.open() as keeper, keeper.run(task, run_id="invite-1") as run:
        run.do("mail.send", to="ada@example.org")
        print("the worker goes on:", run.state.cursor, "action settled", flush=True)


if __name__ == "__main__":
    MAILBOX.mkdir()
    context = multiprocessing.get_context("fork")
    os.environ["DIE_AFTER_SENDING"] = "1"
    first = context.Process(target=work)
    first.start()
    first.join()
    print("the first worker died of signal", -(first.exitcode or 0), flush=True)
    del os.environ["DIE_AFTER_SENDING"]
    second = context.Process(target=work)
    second.start()
    second.join()
    print("mails sent:", len(Path("sent.log").read_text().splitlines()))

# output:
# the first worker died of signal 9
# the worker goes on: 1 action settled
# mails sent: 1
