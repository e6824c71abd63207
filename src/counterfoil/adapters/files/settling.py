"""Bringing a plan to its end: as a receipt, or as never having been.

The same code follows a rename that was just done and one that a killed call left in
the dark. A plan is open until one transaction records which it was.
"""

from msgspec.structs import replace

from counterfoil import journals
from counterfoil.adapters.files import catalog, journal, kinds
from counterfoil.adapters.files.journal import PlanState, transaction, translated
from counterfoil.adapters.files.look import entry_of, serial, spot
from counterfoil.adapters.files.plan import Finding, Plan, path_digests
from counterfoil.adapters.files.realm import FILE, Entry
from counterfoil.adapters.files.site import Site, instance
from counterfoil.adapters.files.swap import settle, sweep
from counterfoil.adapters.files.trouble import name_of
from counterfoil.core.errors import PermissionDeniedError, UnavailableError
from counterfoil.core.intent import EnvironmentState
from counterfoil.core.receipt import Receipt
from counterfoil.core.words import Level


def state(site: Site, patterns: tuple[str, ...], account: str) -> EnvironmentState | None:
    """Return where a realm stands by the journal, or None if it was never observed."""
    standing = catalog.state(site.db, patterns)
    if standing is None:
        return None
    return EnvironmentState(
        adapter=kinds.NAME,
        instance=instance(site),
        version=standing.version,
        fingerprint=standing.fingerprint,
        account=account,
    )


def resolve(site: Site) -> None:
    """Settle the plan that an earlier call left behind, if there is one.

    Raises:
        UnavailableError: It cannot be told or recorded now.
    """
    with translated("settling"):
        left = journal.plan(site.db)
    if left is None:
        return
    standing, plan = left
    try:
        if standing is PlanState.OPEN:
            standing = PlanState.NOT_DONE if conclude(site, plan) is None else PlanState.DONE
        sweep(site.disk, site.root, plan, is_done=standing is PlanState.DONE)
    except OSError as error:
        raise UnavailableError(
            f"an earlier change of {plan.right!r:.200} cannot be settled now ({name_of(error)})"
        ) from error


def conclude(site: Site, plan: Plan) -> Receipt | None:
    """Settle an open plan and record it; return the receipt if it happened.

    Raises:
        OSError, UnavailableError: It cannot be told or recorded now; the plan is open.
    """
    match settle(site.disk, site.root, plan):
        case Finding.AFTER:
            return _finish(site, plan)
        case Finding.BEFORE:
            drop(site, plan)
        case Finding.DISTURBED:
            drop(site, plan, forbids=True)
    return None


def drop(site: Site, plan: Plan, *, forbids: bool = False) -> None:
    """Record that a plan did not happen, and perhaps that it never may.

    Raises:
        UnavailableError: It cannot be recorded now; the plan is open.
    """
    with transaction(site.db, "dropping a plan"):
        if forbids:
            journals.forbid(site.db, plan.run_id, plan.key)
        journal.set_plan(site.db, PlanState.NOT_DONE, plan)


def _finish(site: Site, plan: Plan) -> Receipt:
    after = {
        path: None if sha256 is None else _entry(site, plan, sha256)
        for path, sha256 in path_digests(plan).items()
    }
    with transaction(site.db, "recording a receipt"):
        catalog.change(site.db, after, is_ours=True)
        poststate = state(site, plan.realm, plan.account)
        if poststate is None:
            poststate = EnvironmentState(adapter=kinds.NAME, instance=instance(site))
        receipt = Receipt(
            id=f"{kinds.NAME}-{plan.sequence}",
            adapter=kinds.NAME,
            kind=plan.kind,
            run_id=plan.run_id,
            key=plan.key,
            digest=plan.digest,
            level=Level.TRANSACTIONAL,
            poststate=replace(poststate, account=plan.account),
            committed_at_ms=plan.planned_at_ms,
            served=plan.served,
            statement=plan.statement,
            result=plan.result,
        )
        journal.add_receipt(site.db, plan.sequence, receipt)
        journals.set_served(site.db, plan.run_id, plan.served)
        journal.set_plan(site.db, PlanState.DONE, plan)
    return receipt


def _entry(site: Site, plan: Plan, sha256: str) -> Entry:
    """Return what stands at the right place; if others were quicker, what we put there."""
    status = None
    try:
        with spot(site.disk, site.root, plan.right) as place:
            if place is not None and serial(site.disk, place) == plan.mover.serial:
                status = site.disk.stat(place.folder, place.name)
    except PermissionDeniedError:
        status = None
    if status is not None:
        return entry_of(status, FILE, sha256)
    return Entry(
        kind=FILE,
        sha256=sha256,
        dev=0,
        inode=0,
        size=0,
        mtime_ns=0,
        ctime_ns=0,
        is_settled=False,
    )
