"""Clusters: ranks, distributed shared memory, remote arrivals, the cluster barrier."""

import numpy as np
import pytest
from ptx_harness import Launch, kernel_text

from fa4_cute.emulator import Deadlock, EmulationError, Machine, Module, Schedule

SCHEDULES = [Schedule.eager(), Schedule.lazy(), *map(Schedule.random, range(4))]


def run_cluster(body: str, out: np.ndarray, *, grid=(2, 1, 1), cluster=(2, 1, 1), schedule=None) -> None:
    machine = Machine()
    params = np.uint64(machine.map(out, name="out")).tobytes()
    module = Module(kernel_text(body, ("out",), Launch()))
    shape = {"grid": grid, "block": (32, 1, 1), "cluster": cluster, "smem_bytes": 1024}
    machine.launch(module, "k", params=params, schedule=schedule, **shape)


SYNC = "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n"


def test_ranks():
    body = """mov.u32 %r0, %cluster_ctarank;
    mov.u32 %r1, %clusterid.x;
    mov.u32 %r2, %nclusterid.x;
    mov.u32 %r3, %ctaid.x;
    shl.b32 %r4, %r3, 2;
    mad.lo.u32 %r5, %r1, 100, %r0;
    mad.lo.u32 %r5, %r2, 10000, %r5;
    cvt.u64.u32 %q0, %r4;
    add.u64 %q1, %out, %q0;
    st.global.u32 [%q1], %r5;"""
    out = np.zeros(6, np.uint32)
    run_cluster(body, out, grid=(6, 1, 1))
    np.testing.assert_array_equal(out, [30000, 30001, 30100, 30101, 30200, 30201])


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_read_of_the_peers_shared_memory(schedule):
    body = f"""mov.u32 %r0, %cluster_ctarank;
    mov.u32 %r1, smem;
    add.u32 %r2, %r0, 40;
    st.shared.u32 [%r1], %r2;
    {SYNC}
    xor.b32 %r3, %r0, 1;
    mapa.shared::cluster.u32 %r4, %r1, %r3;
    ld.shared::cluster.u32 %r5, [%r4];
    mul.wide.u32 %q0, %r0, 4;
    add.u64 %q1, %out, %q0;
    st.global.u32 [%q1], %r5;
    {SYNC}"""
    out = np.zeros(2, np.uint32)
    run_cluster(body, out, schedule=schedule)
    np.testing.assert_array_equal(out, [41, 40])


REMOTE = """mov.u32 %r0, %cluster_ctarank;
    mov.u32 %r1, smem;
    mov.u32 %r9, %tid.x;
    setp.eq.u32 %p0, %r9, 0;
    setp.eq.u32 %p1, %r0, 0;
    @%p0 mbarrier.init.shared.b64 [%r1], {count};
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    @%p1 bra WAIT;
    mapa.shared::cluster.u32 %r2, %r1, 0;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r2];
    bra DONE;
    WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r1], 0;
    @!%p2 bra WAIT;
    st.global.u32 [%out], 7;
    DONE:"""


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_remote_arrivals(schedule):
    out = np.zeros(1, np.uint32)
    run_cluster(REMOTE.format(count=32), out, schedule=schedule)
    assert out[0] == 7


def test_too_few_remote_arrivals_are_a_deadlock_that_names_the_barrier():
    with pytest.raises(
        Deadlock, match=r"(?s)CTA \(0,0,0\) warp  0 .*mbarrier at shared 0x0, parity 0.*1 of 33 arrivals pending"
    ):
        run_cluster(REMOTE.format(count=33), np.zeros(1, np.uint32))


def test_rank_outside_the_cluster():
    """Lanes that do not use theirs may compute such an address."""
    unused = "mov.u32 %r1, smem;\nmapa.shared::cluster.u32 %r2, %r1, 2;"
    run_cluster(unused, np.zeros(1, np.uint32))
    body = unused + "\nst.shared::cluster.u32 [%r2], %r1;"
    with pytest.raises(EmulationError, match="names CTA rank 2 of a cluster of 2"):
        run_cluster(body, np.zeros(1, np.uint32))


def test_wait_on_the_peers_mbarrier_is_refused():
    body = f"""mov.u32 %r1, smem;
    mov.u32 %r9, %tid.x;
    setp.eq.u32 %p0, %r9, 0;
    @%p0 mbarrier.init.shared.b64 [%r1], 1;
    {SYNC}
    mapa.shared::cluster.u32 %r2, %r1, 1;
    mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;"""
    with pytest.raises(EmulationError, match="belongs to CTA rank 1"):
        run_cluster(body, np.zeros(1, np.uint32))


def test_grid_that_the_cluster_does_not_divide():
    with pytest.raises(ValueError, match="cluster"):
        run_cluster("", np.zeros(1, np.uint32), grid=(3, 1, 1))
