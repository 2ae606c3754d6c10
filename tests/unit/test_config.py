"""The derivation rules against the published table of the two-query kernel, and what the kernel needs of them."""

import pytest

from fa4_cute.config import FA4Config
from fa4_cute.plan import plan
from fa4_cute.problem import Problem

# dtype, head dim, page size -> block_n, S0/S1, O0/O1, shared ring, K/V stages, qk stages, smem bytes, cross P
TABLE = [
    ("bf16", 64, 0, 192, (0, 192), (384, 448), False, 4, 1, 230636, False),
    ("bf16", 64, 128, 128, (0, 128), (256, 320), False, 6, 1, 230700, False),
    ("bf16", 64, 256, 128, (0, 128), (256, 320), False, 6, 1, 230700, False),
    *(("bf16", d, 0, 128, (0, 128), (256, 384), True, 5, 1, 230676, True) for d in (72, 80, 96, 112, 128)),
    ("bf16", 128, 16, 128, (0, 128), (256, 384), True, 5, 1, 230596, False),
    ("bf16", 128, 64, 128, (0, 128), (256, 384), True, 5, 1, 230596, False),
    ("bf16", 160, 0, 64, (0, 64), (128, 320), True, 5, 1, 222492, True),
    ("bf16", 192, 0, 64, (0, 64), (128, 320), True, 5, 1, 222492, True),
    ("fp8", 64, 0, 192, (0, 192), (384, 448), True, 17, 1, 226764, True),
    ("fp8", 96, 0, 128, (0, 128), (256, 384), False, 6, 2, 230804, False),
    ("fp8", 128, 0, 128, (0, 128), (256, 384), False, 6, 2, 230804, False),
    ("fp8", 192, 0, 64, (0, 64), (128, 320), False, 7, 3, 222780, False),
]


@pytest.mark.parametrize("row", TABLE, ids=lambda r: f"{r[0]}-d{r[1]}-page{r[2]}")
def test_published_table(row):
    dtype, head_dim, page, block_n, s_cols, o_cols, shared, stages, qk_stages, smem, cross = row
    cfg = FA4Config.derive(dtype=dtype, head_dim=head_dim, page_size=page)
    assert (cfg.block_n, (cfg.s0_col, cfg.s1_col), (cfg.o0_col, cfg.o1_col)) == (block_n, s_cols, o_cols)
    assert (cfg.shared_ring, cfg.kv_stages, cfg.qk_stages) == (shared, stages, qk_stages)
    assert (cfg.smem_bytes, cfg.cross_p) == (smem, cross)
    assert (cfg.p0_col, cfg.p1_col) == (s_cols[::-1] if cross else s_cols)


def test_head_dim_256_does_not_fit():
    reasons = FA4Config.derive(dtype="bf16", head_dim=256).supported()
    assert any("block_n 0" in reason for reason in reasons)


def built(head_dim: int, **options) -> FA4Config:
    return FA4Config.derive(dtype="bf16", head_dim=head_dim, max_block_n=128, cross_p=False, **options)


@pytest.mark.parametrize("head_dim", [64, 128])
def test_what_is_built_is_supported(head_dim):
    cfg = built(head_dim, mask="causal")
    assert cfg.supported() == []
    assert cfg.kv_slots == {64: 12, 128: 5}[head_dim]
    assert "causal" in str(cfg) and hash(cfg) == hash(built(head_dim, mask="causal"))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"dtype": "bf16", "head_dim": 64}, "block_n 192: a row of S stays in registers"),
        ({"dtype": "bf16", "head_dim": 128}, "cross_p"),
        ({"dtype": "bf16", "head_dim": 96, "max_block_n": 128}, "head_dim 96"),
        ({"dtype": "fp8", "head_dim": 128, "max_block_n": 128}, "dtype fp8"),
        ({"dtype": "bf16", "head_dim": 128, "page_size": 64}, "page_size 64"),
        ({"dtype": "bf16", "head_dim": 128, "mask": "window"}, "mask window"),
    ],
)
def test_reasons(options, reason):
    assert any(reason in text for text in FA4Config.derive(**options).supported())


def test_bad_names():
    with pytest.raises(ValueError, match="dtype: got 'fp64'"):
        FA4Config.derive(dtype="fp64", head_dim=64)
    with pytest.raises(NotImplementedError, match="sm_90a"):
        FA4Config.derive(dtype="bf16", head_dim=64, arch="sm_90a")


def test_registers_are_the_whole_file():
    cfg = built(128)
    assert 128 * (2 * cfg.regs_softmax + cfg.regs_correction + cfg.regs_other) == 65536
    assert all(count % 8 == 0 for count in (cfg.regs_softmax, cfg.regs_correction, cfg.regs_other))


@pytest.mark.parametrize("head_dim", [64, 128])
def test_shared_memory_budget_covers_the_kernels_layout(head_dim):
    channels = pytest.importorskip("fa4_cute.kernel.channels")
    cfg = built(head_dim)
    tiles = (256 + cfg.kv_slots * cfg.block_n) * cfg.padded_head_dim * 2
    stats, tmem_address = 256 * 4, 4
    used = tiles + stats + 8 * channels.mbarrier_count(cfg.kv_slots) + tmem_address
    assert used <= cfg.smem_bytes <= 232448


def test_exp2_polynomial_is_for_sm_100a():
    assert built(128).exp2_poly_fraction == 0.125
    assert built(128, arch="sm_103a").exp2_poly_fraction == 0.0


def problem(**changes) -> Problem:
    fields = {
        "batch": 2, "heads_q": 8, "heads_kv": 2, "seqlen_q": 1000, "seqlen_k": 1000, "head_dim": 128,
        "head_dim_v": 128, "dtype": "bf16", "mask": "causal", "causal_offset": 0, "scale": 0.1,
    }  # fmt: skip
    return Problem(**{**fields, **changes})


def test_grid_covers_all_tiles_and_heads():
    for length in (1, 256, 257, 5000):
        section, q_tiles, sections = plan(problem(seqlen_q=length), "sm_100a").grid
        assert q_tiles * 256 >= length > (q_tiles - 1) * 256
        assert section * sections >= 16


def test_section_keeps_keys_in_l2():
    section, _, sections = plan(problem(seqlen_k=65536, batch=8), "sm_100a").grid
    bytes_of_kv_head = 65536 * 256 * 2
    assert section % 4 == 0 and section // 4 * bytes_of_kv_head <= 50 << 20
    assert section * sections >= 64
    assert plan(problem(seqlen_k=1 << 22), "sm_100a").grid[0] == 4, "one group, however long its keys"


def test_grid_limit():
    with pytest.raises(NotImplementedError, match="query tiles"):
        plan(problem(seqlen_q=(65535 * 256) + 1), "sm_100a")
    with pytest.raises(NotImplementedError, match="differs"):
        plan(problem(head_dim_v=64), "sm_100a")
