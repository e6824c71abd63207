"""What every test relies on before it is imported."""

import pytest

# Pytest rewrites `assert` in test modules by itself. What they share lives in `tests/support`,
# and is rewritten too: a plain `assert` there would vanish under `python -O`.
pytest.register_assert_rewrite("tests.support")
