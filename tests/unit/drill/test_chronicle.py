"""Takeovers, told by who took which lease of a run."""

from counterfoil.drill.chronicle import Chronicle
from counterfoil.drill.faults import Action
from counterfoil.drill.lines import FromCrew, Gave, Refused, Told, Took

MS = 1_000_000
KILLED, OTHER, THIRD = 11, 12, 13


def took(pid: int, lease_version: int, at_ms: int) -> Took:
    return Took(pid=pid, run_id="drill-000001", lease_version=lease_version, at_ns=at_ms * MS)


def gave(pid: int, lease_version: int) -> Gave:
    return Gave(pid=pid, run_id="drill-000001", lease_version=lease_version)


def heard(*lines: FromCrew, struck_at_ms: int = 500) -> Chronicle:
    """Return what is noted of lines, the first of them before a kill."""
    chronicle = Chronicle()
    chronicle.hear(lines[0])
    chronicle.strike(KILLED, Action.KILL, struck_at_ms * MS)
    for line in lines[1:]:
        chronicle.hear(line)
    return chronicle


def test_a_takeover_lasts_from_the_kill_to_the_next_claim() -> None:
    chronicle = heard(took(KILLED, 2, 100), took(OTHER, 3, 2_400))
    assert (chronicle.takeovers, chronicle.waits_ms) == (1, {Action.KILL: [1_900.0]})


def test_a_run_that_was_given_back_is_not_taken_over() -> None:
    chronicle = heard(took(KILLED, 2, 100), gave(KILLED, 2), took(OTHER, 3, 2_400))
    assert (chronicle.takeovers, chronicle.waits_ms) == (0, {})


def test_a_lease_given_back_after_it_was_taken_over_changes_nothing() -> None:
    chronicle = heard(
        took(KILLED, 2, 100), took(OTHER, 3, 2_400), gave(KILLED, 2), took(THIRD, 4, 9_000)
    )
    assert chronicle.takeovers == 2


def test_a_claim_that_a_sleeper_tells_too_late_is_old() -> None:
    chronicle = heard(took(OTHER, 3, 2_400), took(KILLED, 2, 100), took(OTHER, 4, 3_000))
    assert chronicle.takeovers == 0


def test_a_claim_behind_one_that_nobody_told_is_not_timed() -> None:
    chronicle = heard(took(KILLED, 2, 100), took(OTHER, 4, 4_700))
    assert (chronicle.takeovers, chronicle.waits_ms) == (1, {})


def test_a_fault_from_before_the_claim_is_no_reason_for_its_end() -> None:
    chronicle = heard(took(KILLED, 2, 600), took(OTHER, 3, 2_400), struck_at_ms=500)
    assert (chronicle.takeovers, chronicle.waits_ms) == (1, {})


def test_refused_commits_and_events_are_counted() -> None:
    chronicle = Chronicle()
    chronicle.hear(Refused(pid=OTHER, call="store.put"))
    for event in ("claimed", "claimed", "ended"):
        chronicle.hear(Told(pid=OTHER, event=event, run_id="drill-000001"))
    assert (chronicle.stale_commits, chronicle.told) == (1, {"claimed": 2, "ended": 1})
    assert chronicle.alarms == []


def test_what_no_fault_explains_is_an_alarm() -> None:
    chronicle = Chronicle()
    chronicle.hear(Told(pid=OTHER, event="refused", run_id="drill-000001", reason="RollbackError"))
    assert chronicle.alarms == ["refused drill-000001 RollbackError"]
