"""Random amounts and pods. Memory and cores may be zero, as in the texts that plugins write."""

from typing import Any

from hypothesis import strategies as st

from hamiacct.accounting.amounts import Amount, Usage
from hamiacct.accounting.pods import Allocation, Container, ContainerClass, Pod, Row, Run

INT32_MAX = 2**31 - 1
NODES = ("n1", "n2")
UUIDS = ("GPU-a", "GPU-b", "GPU-c")

numbers = st.integers(0, INT32_MAX) | st.integers(0, 100)
sizes = st.builds(Amount, numbers, numbers, numbers)
core_sets = st.builds(Amount.of_core_set, st.integers(0, 9), numbers, st.integers(0, 255))
usages = st.builds(Usage, st.dictionaries(st.sampled_from(UUIDS), sizes))
core_usages = st.builds(Usage, st.dictionaries(st.sampled_from(UUIDS), core_sets))

rows = st.builds(Row, st.sampled_from(UUIDS), st.just("NVIDIA"), numbers, st.integers(0, 100))
groups = st.lists(rows, max_size=3).map(tuple)
inits = st.sampled_from((ContainerClass.INIT, ContainerClass.SIDECAR))
runs = st.sampled_from(Run)


@st.composite
def containers(draw: st.DrawFn, min_inits: int = 0) -> tuple[Container, ...]:
    """Init containers of both classes in any order, then apps."""
    kinds = [*draw(st.lists(inits, min_size=min_inits, max_size=5)), *draw(apps)]
    return tuple(
        Container(
            position, f"c{position}", kind, draw(runs) if kind is not ContainerClass.APP else Run.ABSENT
        )
        for position, kind in enumerate(kinds)
    )


apps = st.lists(st.just(ContainerClass.APP), max_size=3)


@st.composite
def pods(draw: st.DrawFn, *, min_inits: int = 0, **facts: Any) -> Pod:
    """A living, bound pod with one group per container."""
    shown = draw(containers(min_inits))
    node = draw(st.sampled_from(NODES))
    per_container = draw(st.tuples(*(groups for _ in shown)))
    given: dict[str, Any] = {"node_name": node, "vgpu_node": node, **facts}
    return Pod(
        "u-1",
        "team-a",
        "web-0",
        1,
        shown,
        allocations={"NVIDIA": Allocation("NVIDIA", node, per_container)},
        **given,
    )
