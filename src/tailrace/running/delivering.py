"""What a run knows about the results of the last one, and what it tells its user about them."""

from tailrace import engine
from tailrace.errors import DeliveryRefused, counted
from tailrace.prepare.prepare import Prepared
from tailrace.prepare.target import Announce


def open_delivery(prepared: Prepared, announce: Announce) -> engine.Delivery | None:
    """Let a query that is about to start keep notes, and read which results of the last run exist.

    Returns:
        None if its plan allows neither.

    Raises:
        DeliveryRefused: Results may be repeated, and the user has asked for the opposite.
    """
    built, plan, resumed, sink = prepared.built, prepared.delivery, prepared.resumed, prepared.query.sink
    if resumed is not None and resumed.advanced:
        announce(f"The last run had finished {counted(resumed.advanced, 'record')} after its last checkpoint.")
    if built is None or resumed is None or sink is None or built.uncontrolled:
        return None
    if not (plan.keeps_progress or plan.effectively_once):
        return None
    delivery = engine.Delivery(
        built.frame.sparkSession,
        prepared.checkpoint.location,
        sink.options,
        built.outputs,
        resumed,
        fingerprint=plan.fingerprint,
        once=plan.effectively_once,
        every_ms=prepared.options.progress_every_ms if plan.keeps_progress else 0,
    )
    if plan.effectively_once:
        try:
            _tell(prepared, resumed, delivery, announce)
        except BaseException:
            delivery.close()
            raise
    elif resumed.unused:
        announce(_unused(resumed))
    return delivery


def _unused(resumed: engine.Resumed) -> str:
    return f"The progress since the last checkpoint is not used: {resumed.unused}."


def _tell(prepared: Prepared, resumed: engine.Resumed, delivery: engine.Delivery, announce: Announce) -> None:
    """Say what the query does about results that exist."""
    unknown = delivery.unreadable
    if not unknown and not (resumed.knows_results or resumed.is_fresh or resumed.is_closed):
        unknown = resumed.unused or "the last run kept no note of them"
    if unknown:
        if prepared.query.wants_effectively_once:
            raise DeliveryRefused(
                f"query {prepared.query.name!r} cannot tell which results of its last run exist",
                why=unknown,
                fix="start it once without --delivery effectively-once; it may then repeat some results",
            )
        announce(f"Results after the last checkpoint may be written again: {unknown}.")
        return
    if resumed.unused:
        announce(_unused(resumed))
    if delivery.repeated:
        announce(
            f"The pipeline has changed since the last run: {counted(delivery.repeated, 'result')} after its last note "
            "may be written again."
        )
    elif delivery.guarded:
        announce(f"{counted(delivery.guarded, 'result')} after the last run's note exist and will not be repeated.")
