"""Stories of workers, told again where the machine kept a worker from its servers."""

from collections.abc import Callable
from typing import Any

from tests.support.nursery import AGAIN

Story = list[dict[str, Any]]

TELLINGS_MAX = 3
"""A story whose worker could not reach its servers says nothing, and is told again."""

HANGING = "couldn't stop thread"
"""What the pool says of a connection that was not made in five seconds."""


def heard(tell: Callable[[], Story]) -> Story:
    """Return the first story in which every worker reached its servers, or the last one.

    Wrong effects, lost races and alarms are never told again.

    Args:
        tell: Tells it in a fresh place; fails with what the program wrote.
    """
    for _ in range(TELLINGS_MAX):
        story: Story | str
        try:
            story = tell()
        except AssertionError as error:
            story = str(error)
        if not was_kept_waiting(story):
            break
    assert not isinstance(story, str), story
    return story


def was_kept_waiting(story: Story | str) -> bool:
    """Tell whether a worker could not reach its servers for so long that it gave up."""
    if isinstance(story, str):
        return HANGING in story
    return any(AGAIN in each.get("codes", ()) for each in story)
