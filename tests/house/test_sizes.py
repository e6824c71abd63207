"""A module holds one idea and a function does one job, so both stay short."""

from tests.support.sources import functions, library

MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 50


def test_no_module_is_longer_than_one_idea() -> None:
    lengths = ((source, len(source.text.splitlines())) for source in library())
    assert [
        source.at(1, f"has {lines} lines, the limit is {MODULE_LINES_MAX}")
        for source, lines in lengths
        if lines > MODULE_LINES_MAX
    ] == []


def test_no_function_is_longer_than_one_job() -> None:
    lengths = (
        (source, node, (node.end_lineno or node.lineno) - node.lineno + 1)
        for source in library()
        for node in functions(source)
    )
    assert [
        source.at(node.lineno, f"{node.name} has {lines} lines, the limit is {FUNCTION_LINES_MAX}")
        for source, node, lines in lengths
        if lines > FUNCTION_LINES_MAX
    ] == []
