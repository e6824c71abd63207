"""What every test relies on before it is imported."""

import signal

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
