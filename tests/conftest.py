"""What every test relies on before it is imported."""

import signal
from collections.abc import Generator

import pytest
from hypothesis import settings

# Pytest rewrites `assert` in test modules by itself. What they share lives in `tests/support`,
# and is rewritten too: a plain `assert` there would vanish under `python -O`.
pytest.register_assert_rewrite("tests.support")

# A busy machine is no finding, so no example has a deadline; `timeout` bounds the whole test.
settings.register_profile("counterfoil", deadline=None, print_blob=True)
settings.load_profile("counterfoil")

# A shell starts what runs in its background deaf to Ctrl-C, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _home(tmp_path_factory: pytest.TempPathFactory) -> Generator[None]:
    """Keep keys and heads of tests out of the person's own folders.

    A project of the same path in an earlier run of the tests would be found again there.
    """
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CONFIG", "STATE"):
            patch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
        yield
