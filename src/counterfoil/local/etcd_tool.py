"""etcd's programs on this machine, and commands to its own tool."""

import os
import shutil
import subprocess
from collections.abc import Sequence

from counterfoil.core.errors import ConfigError, UnavailableError
from counterfoil.local.certificates import Certificates

COMMAND_SECONDS = 10
HIDDEN = "***"


def run_tool(
    words: Sequence[str],
    *,
    endpoints: Sequence[str],
    certificates: Certificates | None,
    login: str,
    secret: str,
) -> None:
    """Give `etcdctl` a command.

    Args:
        words: The command and its arguments.
        endpoints: Host and port of the nodes to ask.
        certificates: What the tool shows and trusts; None without TLS.
        login: User, colon, password; empty where nobody is asked for one.
        secret: What no message may hold.

    Raises:
        ConfigError: The tool is not installed.
        UnavailableError: etcd does not answer, or refuses.
    """
    flags = [f"--endpoints={','.join(endpoints)}", f"--command-timeout={COMMAND_SECONDS}s"]
    if certificates is not None:
        flags += [
            f"--cacert={certificates.ca}",
            f"--cert={certificates.client}",
            f"--key={certificates.client_key}",
        ]
    if login:
        flags.append(f"--user={login}")
    answer = subprocess.run(
        [find_program("etcdctl"), *flags, *words],
        check=False,
        capture_output=True,
        text=True,
        env=tool_environment(ETCDCTL_API="3"),
    )
    if answer.returncode != 0:
        said = " ".join(answer.stderr.replace(secret, HIDDEN).split())
        raise UnavailableError(f"etcdctl {words[0]} failed: {said[-300:]}")


def find_program(name: str) -> str:
    """Return where a program of etcd is.

    Raises:
        ConfigError: etcd is not installed.
    """
    found = shutil.which(name)
    if found is None:
        raise ConfigError(
            f"etcd is not installed on this machine: there is no program {name}",
            move="install it, as with `apt-get install etcd-server etcd-client`, and start again",
        )
    return found


def tool_environment(**more: str) -> dict[str, str]:
    """Return our environment without what etcd would take for its own flags."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ETCD")}
    return {**kept, **more}
