"""Commands whose declaration lets a value be code are refused, as far as a list can tell."""

import re
from pathlib import Path

import pytest

from counterfoil.adapters.shell import Command
from counterfoil.adapters.shell.command import check_command
from counterfoil.adapters.shell.lint import OTHERS, PROGRAMS
from counterfoil.core.errors import ConfigError
from tests.support.sources import ROOT

OPEN = {
    "ash": ["ash -c {x}", "ash {x}"],
    "awk": ["awk {x}", "awk -f {x}", "awk -F: {x} file", "awk -v a={y} {x}"],
    "bash": [
        "bash -cx {x}", "bash -cl {x}", "bash -lc {x}", "bash -eo pipefail -c {x}",
        "bash -O extglob -c {x}", "bash +e -c {x}", "bash -{x}", "bash --rcfile={x} -c code",
        "bash --rcfile file -c {x}", "/opt/bin/bash -c {x}", "bash-5.2 -c {x}",
    ],
    "bun": ["bun -e {x}"],
    "busybox": ["busybox {x}", "busybox sh -c {x}", "busybox awk {x}"],
    "chroot": ["chroot place {x}", "chroot {y} sh -c {x}"],
    "csh": ["csh -c {x}"],
    "dash": ["dash -ec {x}"],
    "deno": ["deno eval {x}", "deno run {x}"],
    "doas": ["doas -u www sh -c {x}"],
    "env": [
        "env -S {x}", "env -iS{x}", "env --split-string={x}", "env --sp {x}", "env A={y} {x}",
        "env A=b {x}", "env -u A sh -c {x}", "env -- {x}", "env {x...}", "env sh -c {x}",
    ],
    "find": [
        "find . -exec {x} ;", "find . -exec sh -c {x} ;", "find . -execdir env {x} +",
        "find . -ok {x} ;", "find . -okdir {x} ;", "find . -exec ls ; -exec {x} ;",
    ],
    "fish": ["fish -c {x}", "fish -C code -c {x}", "fish --command={x}"],
    "flock": ["flock lock -c {x}", "flock lock {x}", "flock -w 5 lock sh -c {x}"],
    "gawk": ["gawk -e {x}", "gawk --source={x}"],
    "git": ["git -c {x} status", "git -C folder -c {x} status", "git --exec-path={x} status"],
    "ionice": ["ionice -c 3 {x}"],
    "ksh": ["ksh -c {x}"],
    "lua": ["lua -e {x}", "lua -l {x}", "lua5.4 {x}"],
    "luajit": ["luajit -e{x}"],
    "mariadb": ["mariadb --execute={x}"],
    "mawk": ["mawk {x}"],
    "mksh": ["mksh -c {x}"],
    "mysql": ["mysql -h host -e {x} shop"],
    "nawk": ["nawk {x}"],
    "nice": ["nice {x}", "nice -n 5 {x}", "nice -n {x...} ls", "nice --adjustment 5 {x}"],
    "node": [
        "node -p {x}", "node -e {x}", "node -pe {x}", "node --eval={x}", "node --eval {x}",
        "node --print {x}", "node -r {x} file", "node --ev {x}", "node {x}", "node -e a -e {x}",
    ],
    "nodejs": ["nodejs -e {x}"],
    "nohup": ["nohup {x}", "nohup sh -c {x}"],
    "parallel": ["parallel -j 2 {x}", "parallel sh {x}"],
    "perl": [
        "perl -ne {x}", "perl -e{x}", "perl -lane {x}", "perl -E {x}", "perl -M{x} file",
        "perl -0777 -pe {x}", "perl -e a -e {x}", "perl5.36 -e {x}", "perl -- {x}",
    ],
    "php": ["php -r {x}", "php -d {x} file", "php {x}", "php8.2 --run {x}"],
    "powershell": ["powershell -Command {x}"],
    "psql": ["psql -c {x}", "psql shop -f {x}", "psql --command={x}"],
    "pwsh": ["pwsh -Command {x}", "pwsh -NoProfile -c {x}", "pwsh -c code {x}", "pwsh -File {x}"],
    "pypy": ["pypy3 -c {x}"],
    "python": [
        "python -c {x}", "python3 -Ic {x}", "python3.11 -m {x}", "python3 -m{x}", "python3 {x}",
        "python3 -W error -c {x}", "python3 -X dev {x}", "python3 -c{x}",
    ],
    "rbash": ["rbash -c {x}"],
    "rsync": ["rsync -e {x} a b", "rsync -ae {x} a b", "rsync a b --rsh={x}", "rsync -e{x} a b"],
    "ruby": ["ruby -e {x}", "ruby -e a -e {x}", "ruby -r{x} file", "ruby {x}"],
    "scp": ["scp -o {x} a b", "scp -S{x} a b"],
    "script": ["script -c {x} file", "script -qc {x}", "script --command={x}"],
    "sed": ["sed {x}", "sed -e {x}", "sed -ne {x}", "sed -f {x}", "sed -n --expression={x}"],
    "setsid": ["setsid {x}", "setsid -w sh -c {x}"],
    "sftp": ["sftp -b {x} host"],
    "sh": [
        "sh -c {x}", "sh -ec {x}", "sh -c -e {x}", "sh -c -- {x}", "sh -c a{x}", "sh {x}",
        "sh -{x}",
    ],
    "sqlite": ["sqlite3 shop.db {x}", "sqlite3 -cmd {x} shop.db", "sqlite3 {y} a {x}"],
    "ssh": [
        "ssh host {x}", "ssh -p 22 host ls {x}", "ssh -o {x} host", "ssh -oProxyCommand={x} host",
        "ssh {x...} ls", "ssh {y} -- ls {x}",
    ],
    "stdbuf": ["stdbuf -oL {x}", "stdbuf -o L sh -c {x}"],
    "su": ["su www -c {x}", "su -s {x} www", "su --command={x}"],
    "sudo": ["sudo {x}", "sudo -u www {x}", "sudo --user www sh -c {x}", "sudo -n bash -c {x}"],
    "tar": ["tar --to-command={x} -xf a", "tar -cf a -I {x} b", "tar --checkpoint-act={x} -xf a"],
    "tcsh": ["tcsh -c {x}"],
    "time": ["time {x}", "time -f %e sh -c {x}"],
    "timeout": ["timeout 5 {x}", "timeout -k 1 5 sh -c {x}", "timeout --signal KILL 5 {x}"],
    "watch": ["watch -n 1 ls {x}", "watch {x}"],
    "xargs": ["xargs {x}", "xargs -n 1 sh -c {x}", "xargs -0 -I % {x}", "xargs env {x}"],
    "zsh": ["zsh -fc {x}"],
}  # fmt: skip

CLOSED = [
    "printf %s {x}",
    "sh -c code sh {x}",
    "bash -o pipefail -c code -- {x...}",
    "python3 script.py -c {x}",
    "python3 -c code {x}",
    "perl -ne code {x}",
    "node script.js --eval {x}",
    "awk -v a={x} code {y}",
    "sed -n p {x}",
    "ssh {x} uptime",
    "ssh -p {x} host uptime",
    "timeout {x} ls {y}",
    "timeout 5 sh -c code sh {x}",
    "nice -n {x} ls {y...}",
    "env A={x} ls {y}",
    "xargs rm {x}",
    "find {x} -name {y} -exec rm -- {} +",
    "git switch -c {x}",
    "git commit -m {x}",
    "rsync -a -- {x} {y}",
    "tar -cf {x} {y}",
    "sqlite3 {x} code",
    "psql -d {x} -c code",
    "pwsh -File script.ps1 {x}",
    "su {x} -c code",
]
"""What remains allowed: values behind the code, or where these programs take data."""


def check(*stages: str) -> None:
    words = tuple(tuple(stage.split()) for stage in stages)
    used = re.findall(r"\{([xy])(?:\.\.\.)?\}", " ".join(stages))
    check_command(Command(name="one", stages=words, patterns=dict.fromkeys(used, "[a-z]+")))


@pytest.mark.parametrize(
    "text", [pytest.param(text, id=f"T28 {text}") for texts in OPEN.values() for text in texts]
)
def test_a_value_that_would_be_code_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="lets a value be code"):
        check(text)


@pytest.mark.parametrize("text", CLOSED)
def test_a_value_behind_the_code_is_allowed(text: str) -> None:
    check(text)


@pytest.mark.parametrize(
    "reader", ["sh", "bash -s", "sh -", "python3", "python3 -", "node", "xargs sh", "env sh",
               "psql shop", "sqlite3 shop.db", "ssh host", "pwsh", "sh /dev/stdin"]
)  # fmt: skip
def test_a_value_that_flows_into_an_interpreter_is_refused(reader: str) -> None:
    with pytest.raises(ConfigError, match="lets a value be code"):
        check("printf %s {x}", reader)


@pytest.mark.parametrize("reader", ["sh -c cat", "python3 script.py", "sed p", "psql -c code"])
def test_a_value_that_flows_into_code_is_data(reader: str) -> None:
    check("printf %s {x}", reader)


def test_each_program_of_the_list_is_tried() -> None:
    assert set(OPEN) == {*PROGRAMS, *OTHERS}


def test_the_guide_names_each_program_of_the_list() -> None:
    guide = (Path(ROOT) / "docs" / "how-to" / "shell.md").read_text()
    section = guide.partition("## What the lint knows")[2].partition("\n## ")[0]
    assert set(re.findall(r"`([a-z]+)`", section)) == {*PROGRAMS, *OTHERS}
