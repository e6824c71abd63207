"""How clauses state what they check: one sentence that holds, or an error that names it."""


class ConformanceError(AssertionError):
    """A port does not keep what its contract says."""


def expect(condition: bool, sentence: str) -> None:
    """Hold a port to a sentence.

    Args:
        condition: Whether it holds.
        sentence: What must hold, as a person would say it.

    Raises:
        ConformanceError: It does not hold.
    """
    if not condition:
        raise ConformanceError(sentence)
