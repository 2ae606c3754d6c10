"""The forward kernel: TMA descriptors on the host side, set-up and dispatch of the warp roles on the device."""

from cutlass import Float32, Int32, Int64, cute
from cutlass.cute.nvgpu import cpasync
from cutlass.memory import SmemAllocator

from . import roles, smem
from .channels import Channels
from .correction import correction
from .load import load
from .mma import mma
from .params import Context, Scalars, TmaTensor
from .scheduler import head_batch_index, work_tile
from .softmax import softmax

TMEM_COLUMNS = 512


class Forward:
    """Attention forward of one FA4Config."""

    def __init__(self, cfg):
        self.cfg = cfg
        self.registers = roles.RegisterBudget(cfg.regs_softmax, cfg.regs_correction, cfg.regs_other)
        self.registers.check()

    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,  # (seqlen_q, head dim, heads_q, batch), so are o; k and v with seqlen_k, heads_kv
        k: cute.Tensor,
        v: cute.Tensor,
        o: cute.Tensor,
        lse: Int64,
        seqlen_q: Int32,
        seqlen_k: Int32,
        heads_q: Int32,
        group: Int32,
        batch_heads: Int32,
        causal_offset: Int32,
        scale_log2: Float32,
        grid: tuple[Int32, Int32, Int32],
        stream,
    ):
        """Builds the TMA descriptors and launches. Our own launcher replays this from the artifact's record."""
        cfg = self.cfg
        dtype = smem.DTYPES[cfg.dtype]
        q_tile = cute.select(smem.tile_layout(roles.HALF_ROWS, cfg.head_dim, 1, dtype), mode=[0, 1])
        kv_tile = cute.select(smem.tile_layout(cfg.block_n, cfg.head_dim, 1, dtype), mode=[0, 1])
        load_op, store_op = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
        q_box, kv_box = (roles.HALF_ROWS, cfg.head_dim), (cfg.block_n, cfg.head_dim)
        q_atom, q_coordinates = cpasync.make_tiled_tma_atom(load_op, q, q_tile, q_box)
        k_atom, k_coordinates = cpasync.make_tiled_tma_atom(load_op, k, kv_tile, kv_box)
        v_atom, v_coordinates = cpasync.make_tiled_tma_atom(load_op, v, kv_tile, kv_box)
        o_atom, o_coordinates = cpasync.make_tiled_tma_atom(store_op, o, q_tile, q_box)
        self.kernel(
            q_atom, q_coordinates, k_atom, k_coordinates, v_atom, v_coordinates, o_atom, o_coordinates,
            lse, seqlen_q, seqlen_k, heads_q, group, batch_heads, causal_offset, scale_log2,
        ).launch(grid=grid, block=(roles.CTA_THREADS, 1, 1), stream=stream, min_blocks_per_mp=1)  # fmt: skip

    @cute.kernel
    def kernel(
        self,
        q_atom: cute.CopyAtom,
        q_coordinates: cute.Tensor,
        k_atom: cute.CopyAtom,
        k_coordinates: cute.Tensor,
        v_atom: cute.CopyAtom,
        v_coordinates: cute.Tensor,
        o_atom: cute.CopyAtom,
        o_coordinates: cute.Tensor,
        lse: Int64,
        seqlen_q: Int32,
        seqlen_k: Int32,
        heads_q: Int32,
        group: Int32,
        batch_heads: Int32,
        causal_offset: Int32,
        scale_log2: Float32,
    ):
        """512 threads; see roles.py."""
        cfg = self.cfg
        scalars = Scalars(seqlen_q, seqlen_k, heads_q, group, batch_heads, causal_offset, scale_log2)
        dtype = smem.DTYPES[cfg.dtype]
        storage = SmemAllocator().allocate(smem.shared_storage(cfg))
        q_layout = smem.tile_layout(roles.HALF_ROWS, cfg.head_dim, roles.Q_HALVES, dtype)
        kv_layout = smem.tile_layout(cfg.block_n, cfg.head_dim, cfg.kv_slots, dtype)
        ctx = Context(
            cfg=cfg,
            scalars=scalars,
            channels=Channels.over(cfg.kv_slots, storage.mbarriers.data_ptr()),
            q=TmaTensor(q_atom, q_coordinates),
            k=TmaTensor(k_atom, k_coordinates),
            v=TmaTensor(v_atom, v_coordinates),
            o=TmaTensor(o_atom, o_coordinates),
            lse=lse,
            smem_q=storage.q.get_tensor(q_layout.outer, swizzle=q_layout.inner),
            smem_kv=storage.kv.get_tensor(kv_layout.outer, swizzle=kv_layout.inner),
            smem_stats=storage.stats.get_tensor(cute.make_layout(roles.Q_HALVES * roles.HALF_ROWS)),
            tmem_base=storage.tmem_base.ptr,
        )
        if head_batch_index() < scalars.batch_heads:
            self.run_roles(ctx)

    @cute.jit
    def run_roles(self, ctx):
        """Set-up by one warp each, then every warp its role."""
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == roles.LOAD_WARP:
            for tensor in (ctx.q, ctx.k, ctx.v, ctx.o):
                cpasync.prefetch_descriptor(tensor.atom)
        if warp == roles.MMA_WARP:
            with cute.arch.elect_one():
                ctx.channels.init()
            cute.arch.mbarrier_init_fence()
        if warp == roles.CORRECTION_WARPS[0]:
            cute.arch.alloc_tmem(TMEM_COLUMNS, ctx.tmem_base)
            cute.arch.relinquish_tmem_alloc_permit()
        cute.arch.sync_threads()  # tcgen05.alloc is synchronous: it needs no tcgen05.fence

        if warp < roles.CORRECTION_WARPS[0]:
            cute.arch.setmaxregister_increase(self.registers.softmax)
            softmax(ctx, work_tile(ctx.cfg, ctx.scalars))
        elif warp < roles.MMA_WARP:
            cute.arch.setmaxregister_decrease(self.registers.correction)
            correction(ctx, work_tile(ctx.cfg, ctx.scalars))
            self.free_tmem(ctx, warp)
        else:
            cute.arch.setmaxregister_decrease(self.registers.other)
            if warp == roles.MMA_WARP:
                mma(ctx, work_tile(ctx.cfg, ctx.scalars))
            if warp == roles.LOAD_WARP:
                load(ctx, work_tile(ctx.cfg, ctx.scalars))

    @cute.jit
    def free_tmem(self, ctx, warp):
        """The warp that allocated frees. The barrier of the last half's output has made sure that all lanes of O have
        been read, and O being complete that every other use of TMEM is over."""
        if warp == roles.CORRECTION_WARPS[0]:
            pointer = cute.arch.retrieve_tmem_ptr(Float32, 16, ctx.tmem_base)
            cute.arch.dealloc_tmem(pointer, TMEM_COLUMNS)
