"""Device code of gemm.py: apart because it needs the DSL when it is imported."""

import cutlass
from cutlass import Float32, Int32, Int64, cute
from cutlass.cute.nvgpu import OperandMajorMode, cpasync, tcgen05
from cutlass.memory import SmemAllocator
from cutlass.utils import sm100

from fa4_cute.kernel import ptx

TMEM_COLUMNS = 256


class GemmKernel:
    """See gemm.Gemm for the shape."""

    def __init__(self, gemm, dtype):
        self.gemm, self.dtype = gemm, dtype
        self.stages = gemm.k_tiles
        self.tiler = (128, gemm.n, 128 * 8 // dtype.width)

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, out: Int64, stream):
        accumulator = cutlass.Int32 if cutlass.const_expr(self.gemm.integer) else Float32
        major = [OperandMajorMode.MN if mn else OperandMajorMode.K for mn in (self.gemm.a_mn, self.gemm.b_mn)]
        mma = sm100.make_trivial_tiled_mma(self.dtype, *major, accumulator, tcgen05.CtaGroup.ONE, self.tiler[:2])
        a_layout = sm100.make_smem_layout_a(mma, self.tiler, self.dtype, self.stages)
        b_layout = sm100.make_smem_layout_b(mma, self.tiler, self.dtype, self.stages)
        load = cpasync.CopyBulkTensorTileG2SOp(tcgen05.CtaGroup.ONE)
        one = [cute.select(layout, mode=[0, 1, 2]) for layout in (a_layout, b_layout)]
        a_atom, a_tiles = cute.nvgpu.make_tiled_tma_atom_A(load, a, one[0], self.tiler, mma)
        b_atom, b_tiles = cute.nvgpu.make_tiled_tma_atom_B(load, b, one[1], self.tiler, mma)
        self.kernel(mma, a_atom, a_tiles, b_atom, b_tiles, out, a_layout, b_layout).launch(
            grid=(1, 1, 1), block=(128, 1, 1), stream=stream
        )

    @cute.kernel
    def kernel(
        self,
        mma: cute.TiledMma,
        a_atom: cute.CopyAtom,
        a_tiles: cute.Tensor,
        b_atom: cute.CopyAtom,
        b_tiles: cute.Tensor,
        out: Int64,
        a_layout: cute.ComposedLayout,
        b_layout: cute.ComposedLayout,
    ):
        smem = SmemAllocator()
        barriers = smem.allocate_array(Int64, self.stages + 1)  # one a K tile, one for D
        holder = smem.allocate_array(Int32, 1)
        shared_a = smem.allocate_tensor(self.dtype, a_layout.outer, byte_alignment=1024, swizzle=a_layout.inner)
        shared_b = smem.allocate_tensor(self.dtype, b_layout.outer, byte_alignment=1024, swizzle=b_layout.inner)
        thread, warp = cute.arch.thread_idx()[0], cute.arch.make_warp_uniform(cute.arch.warp_idx())
        if warp == 0:
            with cute.arch.elect_one():
                for i in cutlass.range_constexpr(self.stages + 1):
                    cute.arch.mbarrier_init(barriers + i, 1)
            cute.arch.mbarrier_init_fence()
            cute.arch.alloc_tmem(TMEM_COLUMNS, holder)
            cute.arch.relinquish_tmem_alloc_permit()
        cute.arch.sync_threads()
        d_column = cute.arch.retrieve_tmem_ptr(Float32, 16, holder)
        if warp == 0:
            self.multiply(mma, (a_atom, a_tiles, shared_a), (b_atom, b_tiles, shared_b), barriers, d_column)
        cute.arch.mbarrier_wait(barriers + self.stages, 0)
        ptx.tcgen05_fence_after_sync()
        lane = Int32(warp * 32) << 16
        row = out + Int64(thread) * (self.gemm.n * 4)
        for first in cutlass.range_constexpr(0, self.gemm.n, 32):
            values = ptx.tmem_load(lane + Int32(first), 32)
            ptx.tmem_wait_load()
            for i in cutlass.range_constexpr(32):
                ptx.store_global_f32(row + (first + i) * 4, values[i])
        ptx.tcgen05_fence_before_sync()
        cute.arch.sync_threads()
        if warp == 0:
            ptx.tcgen05_fence_after_sync()
            cute.arch.dealloc_tmem(d_column, TMEM_COLUMNS)

    @cute.jit
    def multiply(self, mma, a, b, barriers, d_column):
        """Warp 0: loads every K tile, then multiplies them in order."""
        part = mma.get_slice(0)
        a_global = part.partition_A(cute.local_tile(a[1], cute.select(self.tiler, mode=[0, 2]), (0, None)))
        b_global = part.partition_B(cute.local_tile(b[1], cute.select(self.tiler, mode=[1, 2]), (0, None)))
        one = cute.make_layout(1)
        a_to, a_from = cpasync.tma_partition(
            a[0], 0, one, cute.group_modes(a[2], 0, 3), cute.group_modes(a_global, 0, 3)
        )
        b_to, b_from = cpasync.tma_partition(
            b[0], 0, one, cute.group_modes(b[2], 0, 3), cute.group_modes(b_global, 0, 3)
        )
        tile_bytes = (self.tiler[0] + self.tiler[1]) * self.tiler[2] * self.dtype.width // 8
        for i in cutlass.range_constexpr(self.stages):
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(barriers + i, tile_bytes)
            cute.copy(a[0], a_from[None, i], a_to[None, i], tma_bar_ptr=barriers + i)
            cute.copy(b[0], b_from[None, i], b_to[None, i], tma_bar_ptr=barriers + i)
        a_operand, b_operand = mma.make_fragment_A(a[2]), mma.make_fragment_B(b[2])
        d = mma.make_fragment_C(mma.partition_shape_C(self.tiler[:2]))
        d = cute.make_tensor(cute.recast_ptr(d_column, dtype=d.element_type), d.layout)
        mma.set(tcgen05.Field.ACCUMULATE, False)
        for i in cutlass.range_constexpr(self.stages):
            cute.arch.mbarrier_wait(barriers + i, 0)
            for k in cutlass.range_constexpr(cute.size(a_operand, mode=[2])):
                cute.gemm(mma, d, a_operand[None, None, k, i], b_operand[None, None, k, i], d)
                mma.set(tcgen05.Field.ACCUMULATE, True)
        with cute.arch.elect_one():
            tcgen05.commit(barriers + self.stages)
