"""Transactions that go through only while leases stand, and that lengthen these first.

Keeping alive comes before the transaction, so that no holder is told of a term that is
longer than etcd's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from counterfoil.core.errors import CounterfoilError, LeaseLostError, StaleHeadError
from counterfoil.core.words import RunId
from counterfoil.stores.etcd_gateway import Gateway, Kept
from counterfoil.stores.etcd_judging import Present, present_of, present_steps
from counterfoil.stores.etcd_leases import BY_CONSENSUS, Grip, Leases
from counterfoil.stores.etcd_records import Keys, hold_value
from counterfoil.stores.etcd_wire import RangeAnswer, Txn, TxnAnswer

GRIPS_MAX = 4
"""Tries to find the lease that a hold is on; it moves only when its holder moves it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Want:
    """A lease that is to be kept for one run while a transaction is made.

    Attributes:
        run_id: The run.
        nonce: Of the acquisition.
        lease_version: Of the acquisition.
        ttl_ms: The term that is to begin.
    """

    run_id: RunId
    nonce: str
    lease_version: int
    ttl_ms: int


class Holding:
    """Makes such transactions for one register."""

    def __init__(self, gateway: Gateway, keys: Keys, leases: Leases) -> None:
        self._gateway = gateway
        self._keys = keys
        self._leases = leases

    def act(
        self,
        wants: tuple[Want, ...],
        transaction: Callable[[Mapping[RunId, Grip]], Txn],
        refusal: Callable[[Mapping[RunId, Present]], CounterfoilError | None],
    ) -> TxnAnswer:
        """Keep leases alive, and make a transaction that goes through only while they stand.

        Args:
            wants: One for each run.
            transaction: Returns it, given how each hold is kept. It compares every grip,
                makes its moves, and where it fails reads `present_steps` of each run.
            refusal: Returns what speaks against it in what lies there, if anything does.

        Raises:
            CounterfoilError: What `refusal` returned.
            StaleHeadError: The comparison failed, and nothing speaks against it.
            LeaseLostError: The lease ends all the time.
            UnavailableError: Leases may be longer, and nothing else happened.
            UnknownOutcomeError: The answer was lost.
        """
        run_id = wants[0].run_id if len(wants) == 1 else RunId("")
        ids = {
            want.run_id: self._leases.id_of(
                want.run_id, want.nonce, want.lease_version, want.ttl_ms
            )
            for want in wants
        }
        for _ in range(GRIPS_MAX):
            kept = self._leases.keep(tuple(ids.values()))
            answer, grips = None, dict[RunId, Grip]()
            if all(kept.ttls.values()):
                grips = self._grips(wants, ids, kept)
                answer = self._gateway.act(transaction(grips), run_id)
                if answer.succeeded:
                    holds = {grip.key: grip.kept_id for grip in grips.values()}
                    self._leases.confirm(holds, _term_of(grips, kept), answer)
                    return answer
            present = self.look(wants) if answer is None else _presents(wants, answer.ranges)
            self._drop_longer(grips, present)
            error = refusal(present)
            if error is not None:
                raise error
            found = {run: int(each.hold.lease) for run, each in present.items() if each.hold}
            if answer is not None and found == ids:
                raise odd(run_id)
            ids = found
        raise LeaseLostError("the lease ends whenever it is kept alive", run_id)

    def _drop_longer(self, grips: Mapping[RunId, Grip], present: Mapping[RunId, Present]) -> None:
        for run_id, grip in grips.items():
            if grip.longer is not None:
                self._leases.drop(grip.longer, present[run_id].hold)

    def _grips(
        self, wants: tuple[Want, ...], ids: Mapping[RunId, int], kept: Kept
    ) -> dict[RunId, Grip]:
        """Return how each hold is kept, having begun a longer lease where one is asked for."""
        grips: dict[RunId, Grip] = {}
        for want in wants:
            lease_id, longer = ids[want.run_id], None
            who = want.run_id, want.nonce, want.lease_version
            if kept.ttls[lease_id] * 1000 < want.ttl_ms:
                longer = self._leases.begin(*who, want.ttl_ms)
            grips[want.run_id] = Grip(
                key=self._keys.hold(want.run_id),
                value=hold_value(want.nonce, want.lease_version),
                lease_id=lease_id,
                longer=longer,
            )
        return grips

    def look(self, wants: tuple[Want, ...]) -> dict[RunId, Present]:
        """Return what lies in etcd of each run, at one moment.

        Raises:
            UnavailableError, FormatError, RollbackError: As `Gateway.ask`.
        """
        steps = tuple(step for want in wants for step in present_steps(self._keys, want.run_id))
        return _presents(wants, self._gateway.ask(Txn(success=steps)).ranges)


def odd(run_id: RunId) -> StaleHeadError:
    """Return the error for a record that is not as expected in what no rule names."""
    return StaleHeadError("the head is not the record that was expected", run_id)


def _presents(wants: tuple[Want, ...], ranges: Sequence[RangeAnswer]) -> dict[RunId, Present]:
    size = len(ranges) // len(wants)
    return {
        want.run_id: present_of(want.run_id, ranges[at * size : (at + 1) * size])
        for at, want in enumerate(wants)
    }


def _term_of(grips: Mapping[RunId, Grip], kept: Kept) -> int:
    """Return the one leader's term that all holds were kept under, or 0."""
    terms = {kept.term if each.longer is None else each.longer.term for each in grips.values()}
    terms -= {BY_CONSENSUS}
    if not terms:
        return BY_CONSENSUS
    return terms.pop() if len(terms) == 1 else 0
