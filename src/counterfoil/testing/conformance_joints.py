"""What every backend that is store and register at once must keep: clauses as plain functions.

Give each a fresh `JointBench`. A clause that returns is kept. One that is broken raises
`ConformanceError` with the sentence, or lets an error of the backend through where
there should be none. Store and register themselves are held to `STORE_CLAUSES` and
`HEAD_CLAUSES`.
"""

from collections.abc import Callable

from counterfoil.testing import joint_commits as commits
from counterfoil.testing.joint_commits import JointBench

__all__ = ["JOINT_CLAUSES", "JointBench"]

JOINT_CLAUSES: tuple[Callable[[JointBench], None], ...] = (
    commits.a_commit_stores_its_row_and_moves_its_head,
    commits.what_a_commit_stored_is_found,
    commits.a_commit_never_shortens_the_lease,
    commits.a_commit_whose_answer_was_lost_is_not_made_twice,
    commits.a_row_that_was_put_before_is_committed,
    commits.a_commit_from_another_head_leaves_nothing,
    commits.a_commit_under_a_superseded_lease_leaves_nothing,
    commits.a_commit_under_another_nonce_leaves_nothing,
    commits.a_commit_without_a_head_leaves_nothing,
    commits.a_commit_under_an_older_lease_than_the_mark_leaves_nothing,
    commits.what_nobody_could_commit_is_refused,
    commits.a_batch_commits_every_row_and_every_move,
    commits.a_batch_is_all_or_none,
    commits.a_batch_can_commit_to_one_run_twice,
    commits.one_of_many_commits,
    commits.threads_that_share_a_connection_lose_nothing,
    commits.whoever_reads_a_head_finds_its_checkpoint,
)
