"""``tailrace bench``: lanes side by side."""

from tailrace.bench.options import PROFILES, BenchOptions, caveats
from tailrace.bench.registry import lanes_named
from tailrace.bench.study import Study
from tailrace.bench.work import Work
from tailrace.errors import OptionRefused


def lanes_study(options: BenchOptions, profile: str) -> Study:
    """The lanes that were chosen, with one work and one rate."""
    work = Work(options.work)
    lanes = lanes_named(options.lanes)
    for lane in lanes:
        if work not in lane.works:
            can = ", ".join(sorted(lane.works))
            raise OptionRefused(f"lane {lane.name} cannot do {work}", fix=f"it can do: {can}")
    return Study(
        "bench",
        [options.cell(lane) for lane in lanes],
        options.runs,
        options.as_settings(),
        profile=profile,
        notes=[*caveats(options), *_own_notes(options, profile)],
    )


def _own_notes(options: BenchOptions, profile: str) -> list[str]:
    changed = [
        name
        for name, value in PROFILES[profile].as_settings().items()
        if options.as_settings()[name] != value and name not in ("boundaries", "lanes")
    ]
    return [f"Changed from the profile {profile}: {', '.join(changed)}."] if changed else []
