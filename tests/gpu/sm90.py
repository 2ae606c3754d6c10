"""Kernels for a Hopper GPU, to prove the launcher where no SM100 GPU is at hand.

Attention90 has the forward kernel's parameter list, grid and semantics, with plain arithmetic in place of tcgen05.
TileCopy moves one box a CTA, in by one tensor map and out by another, of rank 1 to 5.
"""

import math

from cutlass import BFloat16, Float32, Int32, Int64, const_expr, cute, range_constexpr
from cutlass.cute.nvgpu import cpasync
from cutlass.memory import SmemAllocator

from fa4_cute.kernel import ptx, roles, smem
from fa4_cute.kernel.load import tma_tiles
from fa4_cute.kernel.params import Scalars, TmaTensor
from fa4_cute.kernel.scheduler import CTA_ROWS, head_batch_index, work_tile

COPY_TILES = {1: (64,), 2: (64, 8), 3: (64, 8, 4), 4: (64, 8, 4, 2), 5: (64, 8, 4, 2, 2)}


@cute.jit
def load_box(tensor, source, shared, barrier, box_bytes: int):
    """One TMA load by the calling warp."""
    with cute.arch.elect_one():
        cute.arch.mbarrier_arrive_and_expect_tx(barrier, box_bytes)
    cute.copy(tensor.atom, source, shared, tma_bar_ptr=barrier)


class Attention90:
    """One query row a thread. With `copy` O is Q and the LSE is the row's number of visible keys: for timing."""

    def __init__(self, cfg, copy: bool = False):
        self.cfg, self.copy = cfg, copy

    @cute.jit
    def __call__(
        self, q: cute.Tensor, k: cute.Tensor, v: cute.Tensor, o: cute.Tensor, lse: Int64,
        seqlen_q: Int32, seqlen_k: Int32, heads_q: Int32, group: Int32, batch_heads: Int32, causal_offset: Int32,
        scale_log2: Float32, grid: tuple[Int32, Int32, Int32], stream,
    ):  # fmt: skip
        cfg, dtype = self.cfg, smem.DTYPES[self.cfg.dtype]
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
        ).launch(grid=grid, block=(CTA_ROWS, 1, 1), stream=stream)  # fmt: skip

    @cute.kernel
    def kernel(
        self, q_atom: cute.CopyAtom, q_coordinates: cute.Tensor, k_atom: cute.CopyAtom, k_coordinates: cute.Tensor,
        v_atom: cute.CopyAtom, v_coordinates: cute.Tensor, o_atom: cute.CopyAtom, o_coordinates: cute.Tensor,
        lse: Int64, seqlen_q: Int32, seqlen_k: Int32, heads_q: Int32, group: Int32, batch_heads: Int32,
        causal_offset: Int32, scale_log2: Float32,
    ):  # fmt: skip
        cfg, dtype = self.cfg, smem.DTYPES[self.cfg.dtype]
        scalars = Scalars(seqlen_q, seqlen_k, heads_q, group, batch_heads, causal_offset, scale_log2)

        @cute.struct
        class Storage:
            q: cute.struct.Align[cute.struct.MemRange[dtype, CTA_ROWS * cfg.head_dim], 1024]
            kv: cute.struct.Align[cute.struct.MemRange[dtype, 2 * cfg.block_n * cfg.head_dim], 1024]
            mbarriers: cute.struct.MemRange[Int64, 2]

        storage = SmemAllocator().allocate(Storage)
        q_layout = smem.tile_layout(roles.HALF_ROWS, cfg.head_dim, roles.Q_HALVES, dtype)
        kv_layout = smem.tile_layout(cfg.block_n, cfg.head_dim, 2, dtype)
        if head_batch_index() < batch_heads:
            self.attend(
                (TmaTensor(q_atom, q_coordinates), TmaTensor(k_atom, k_coordinates), TmaTensor(v_atom, v_coordinates),
                 TmaTensor(o_atom, o_coordinates)),
                storage.q.get_tensor(q_layout.outer, swizzle=q_layout.inner),
                storage.kv.get_tensor(kv_layout.outer, swizzle=kv_layout.inner),
                storage.mbarriers.data_ptr(), lse, scalars,
            )  # fmt: skip

    @cute.jit
    def attend(self, tensors, smem_q, smem_kv, barriers, lse, scalars):
        cfg = self.cfg
        q, k, v, o = tensors
        work = work_tile(cfg, scalars)
        thread, warp = cute.arch.thread_idx()[0], cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == 0:
            with cute.arch.elect_one():
                cute.arch.mbarrier_init(barriers, 2)
                cute.arch.mbarrier_init(barriers + 1, 2)
            cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()
        q_shared, q_source = tma_tiles(q, smem_q, roles.HALF_ROWS, cfg.head_dim, work.head, work.batch)
        if warp == 0:
            for half in range_constexpr(roles.Q_HALVES):
                tile = work.q_tile * roles.Q_HALVES + half
                box = roles.HALF_ROWS * cfg.head_dim * 2
                load_box(q, q_source[None, tile], q_shared[None, half], barriers, box)
        cute.arch.mbarrier_wait(barriers, 0)
        row = work.row + thread
        my_row = smem_q[thread % roles.HALF_ROWS, None, thread // roles.HALF_ROWS]
        if const_expr(self.copy):
            result = Float32(ptx.maximum(work.visible_keys(row), Int32(0)))
        else:
            result = self.online_softmax(k, v, smem_kv, barriers + 1, work, scalars, row, my_row)
        if lse != 0 and row < scalars.seqlen_q:
            head_batch = Int64(work.batch * scalars.heads_q + work.head)
            ptx.store_global_f32(lse + (head_batch * Int64(scalars.seqlen_q) + Int64(row)) * 4, result)
        cute.arch.fence_view_async_shared()
        cute.arch.sync_threads()
        o_shared, o_global = tma_tiles(o, smem_q, roles.HALF_ROWS, cfg.head_dim, work.head, work.batch)
        if warp == 0:
            for half in range_constexpr(roles.Q_HALVES):
                with cute.arch.elect_one():
                    cute.copy(o.atom, o_shared[None, half], o_global[None, work.q_tile * roles.Q_HALVES + half])
            with cute.arch.elect_one():
                cute.arch.cp_async_bulk_commit_group()
                cute.arch.cp_async_bulk_wait_group(0, read=True)

    @cute.jit
    def online_softmax(self, k, v, smem_kv, barrier, work, scalars, row, my_row):
        """Leaves O in `my_row`, where Q was; returns the natural-log LSE."""
        cfg = self.cfg
        query = [Float32(my_row[d]) * scalars.scale_log2 for d in range(cfg.head_dim)]
        output = cute.make_rmem_tensor(cute.make_layout(cfg.head_dim), Float32)
        output.fill(0.0)
        k_shared, k_source = tma_tiles(k, smem_kv, cfg.block_n, cfg.head_dim, work.kv_head, work.batch)
        v_shared, v_source = tma_tiles(v, smem_kv, cfg.block_n, cfg.head_dim, work.kv_head, work.batch)
        visible, largest, total = work.visible_keys(row), Float32(-float("inf")), Float32(0.0)
        box = cfg.block_n * cfg.head_dim * 2
        for tile in range(work.tiles):
            if cute.arch.make_warp_uniform(cute.arch.warp_idx()) == 0:
                load_box(k, k_source[None, tile], k_shared[None, 0], barrier, box)
                load_box(v, v_source[None, tile], v_shared[None, 1], barrier, box)
            cute.arch.mbarrier_wait(barrier, tile & 1)
            for key in range(ptx.minimum(visible - tile * cfg.block_n, Int32(cfg.block_n))):
                logit = Float32(0.0)
                for d in range_constexpr(cfg.head_dim):
                    logit += query[d] * Float32(smem_kv[key, d, 0])
                before, largest = largest, cute.arch.fmax(largest, logit)
                shrink, weight = cute.arch.exp2(before - largest), cute.arch.exp2(logit - largest)
                total = total * shrink + weight
                for d in range_constexpr(cfg.head_dim):
                    output[d] = output[d] * shrink + weight * Float32(smem_kv[key, d, 1])
            cute.arch.sync_threads()
        for d in range_constexpr(cfg.head_dim):
            share = output[d] / total if total > 0.0 else Float32(0.0)
            my_row[d] = share.to(smem.DTYPES[cfg.dtype])
        return (largest + cute.math.log2(total)) * 0.6931471805599453


class TileCopy:
    """Box (x, y, z) of the source to the same box of the target; dimensions 3 and 4 are one box each.

    The kernel knows neither swizzle: both are in the tensor maps only, so shared memory keeps the image of the load.
    """

    def __init__(self, rank: int, inner: int, cluster: int = 1, pdl: bool = False):
        self.tile = (inner, *COPY_TILES[rank][1:])
        self.cluster, self.pdl = cluster, pdl

    @cute.jit
    def __call__(self, source: cute.Tensor, target: cute.Tensor, grid: tuple[Int32, Int32, Int32], stream):
        layout = cute.make_layout(self.tile)
        load_op, store_op = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
        from_atom, from_coordinates = cpasync.make_tiled_tma_atom(load_op, source, layout, self.tile)
        to_atom, to_coordinates = cpasync.make_tiled_tma_atom(store_op, target, layout, self.tile)
        self.kernel(from_atom, from_coordinates, to_atom, to_coordinates).launch(
            grid=grid, block=(32, 1, 1), cluster=(self.cluster, 1, 1), stream=stream, use_pdl=self.pdl
        )

    @cute.kernel
    def kernel(
        self,
        from_atom: cute.CopyAtom,
        from_coordinates: cute.Tensor,
        to_atom: cute.CopyAtom,
        to_coordinates: cute.Tensor,
    ):
        @cute.struct
        class Storage:
            tile: cute.struct.Align[cute.struct.MemRange[BFloat16, math.prod(self.tile)], 1024]
            mbarrier: cute.struct.MemRange[Int64, 1]

        storage = SmemAllocator().allocate(Storage)
        barrier, shared = storage.mbarrier.data_ptr(), storage.tile.get_tensor(cute.make_layout(self.tile))
        with cute.arch.elect_one():
            cute.arch.mbarrier_init(barrier, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()
        if const_expr(self.pdl):
            cute.arch.griddepcontrol_wait()
        source, source_shared = self.box(from_atom, from_coordinates, shared)
        target, target_shared = self.box(to_atom, to_coordinates, shared)
        load_box(TmaTensor(from_atom, None), source, source_shared, barrier, 2 * math.prod(self.tile))
        cute.arch.mbarrier_wait(barrier, 0)
        with cute.arch.elect_one():
            cute.copy(to_atom, target_shared, target)
            cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(0, read=True)

    def box(self, atom, coordinates, shared):
        """(box of this CTA in global memory, the box in shared memory)."""
        rank = len(self.tile)
        index = (*cute.arch.block_idx(), 0, 0)[:rank]
        tile = cute.local_tile(coordinates, self.tile, index)
        inside, outside = cpasync.tma_partition(
            atom, 0, cute.make_layout(1), cute.group_modes(shared, 0, rank), cute.group_modes(tile, 0, rank)
        )
        return outside, inside
