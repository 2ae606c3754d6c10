"""Single instructions that the roles need in an exact form. Nothing here decides anything.

All functions run while a kernel is traced. TMEM addresses are plain Int32: lane << 16 | column. The kernel always
holds all 512 columns, so its allocation starts at column 0 and columns are compile-time numbers.
"""

from cutlass import BFloat16, Boolean, Float32, Int32, Int64, cute
from cutlass._mlir import ir
from cutlass._mlir.dialects import arith, llvm, nvvm, vector
from cutlass.cutlass_dsl import T, dsl_user_op

TMEM_ADDRESS_SPACE = 6
_LD_ST_SHAPE = nvvm.Tcgen05LdStShape.SHAPE_32X32B


def _tmem_pointer(address, loc, ip):
    space = llvm.PointerType.get(TMEM_ADDRESS_SPACE)
    return llvm.inttoptr(space, Int32(address).ir_value(loc=loc, ip=ip), loc=loc, ip=ip)


@dsl_user_op
def tmem_load(address, columns: int, *, loc=None, ip=None) -> list:
    """tcgen05.ld.32x32b: `columns` consecutive fp32 columns of this thread's lane. Asynchronous: see tmem_wait_load."""
    words = ir.VectorType.get([columns], T.i32())
    loaded = nvvm.tcgen05_ld(words, _LD_ST_SHAPE, _tmem_pointer(address, loc, ip), loc=loc, ip=ip)
    floats = vector.bitcast(ir.VectorType.get([columns], T.f32()), loaded, loc=loc, ip=ip)
    return [
        Float32(vector.extract(floats, dynamic_position=[], static_position=[i], loc=loc, ip=ip))
        for i in range(columns)
    ]


@dsl_user_op
def tmem_store(address, values: list, *, loc=None, ip=None) -> None:
    """tcgen05.st.32x32b: consecutive columns of this thread's lane, one 32-bit value (Float32 or Int32) each."""
    element = values[0].dtype.mlir_type
    packed = vector.from_elements(
        ir.VectorType.get([len(values)], element), [v.ir_value(loc=loc, ip=ip) for v in values], loc=loc, ip=ip
    )
    words = vector.bitcast(ir.VectorType.get([len(values)], T.i32()), packed, loc=loc, ip=ip)
    nvvm.tcgen05_st(_LD_ST_SHAPE, _tmem_pointer(address, loc, ip), words, loc=loc, ip=ip)


@dsl_user_op
def tmem_wait_load(*, loc=None, ip=None) -> None:
    """tcgen05.wait::ld: registers of earlier tmem_loads may be used from here on."""
    nvvm.tcgen05_wait(nvvm.Tcgen05WaitKind.LOAD, loc=loc, ip=ip)


@dsl_user_op
def tmem_wait_store(*, loc=None, ip=None) -> None:
    """tcgen05.wait::st: earlier tmem_stores have reached TMEM."""
    nvvm.tcgen05_wait(nvvm.Tcgen05WaitKind.STORE, loc=loc, ip=ip)


@dsl_user_op
def tcgen05_fence_before_sync(*, loc=None, ip=None) -> None:
    """Orders this thread's earlier tcgen05 operations before the arrive that follows."""
    nvvm.tcgen05_fence(nvvm.Tcgen05FenceKind.BEFORE_THREAD_SYNC, loc=loc, ip=ip)


@dsl_user_op
def tcgen05_fence_after_sync(*, loc=None, ip=None) -> None:
    """Orders tcgen05 operations that follow behind the wait that precedes."""
    nvvm.tcgen05_fence(nvvm.Tcgen05FenceKind.AFTER_THREAD_SYNC, loc=loc, ip=ip)


@dsl_user_op
def mma_f16(d_col, a, b_desc, idesc, accumulate, *, a_in_tmem: bool, loc=None, ip=None) -> None:
    """tcgen05.mma.cta_group::1.kind::f16, one K=16 block. One thread issues it.

    a: TMEM address (Int32) if a_in_tmem, else a 64-bit SMEM matrix descriptor; accumulate False: D = A*B.
    """
    a_value = _tmem_pointer(a, loc, ip) if a_in_tmem else Int64(a).ir_value(loc=loc, ip=ip)
    nvvm.tcgen05_mma(
        nvvm.Tcgen05MMAKind.F16,
        nvvm.CTAGroupKind.CTA_1,
        _tmem_pointer(d_col, loc, ip),
        a_value,
        Int64(b_desc).ir_value(loc=loc, ip=ip),
        Int32(idesc).ir_value(loc=loc, ip=ip),
        Boolean(accumulate).ir_value(loc=loc, ip=ip),
        loc=loc,
        ip=ip,
    )


@dsl_user_op
def mma_commit(mbarrier, *, loc=None, ip=None) -> None:
    """tcgen05.commit: the mbarrier gets one arrival when all earlier MMAs of this thread are complete."""
    nvvm.tcgen05_commit(mbarrier.to_llvm_ptr(loc=loc, ip=ip), group=nvvm.CTAGroupKind.CTA_1, loc=loc, ip=ip)


@dsl_user_op
def max3(a, b, c, *, loc=None, ip=None) -> Float32:
    """Three-input maximum; NaN if any input is NaN, so that a NaN score reaches the output row."""
    operands = [Float32(x).ir_value(loc=loc, ip=ip) for x in (a, b, c)]
    return Float32(nvvm.fmax(operands[0], operands[1], c=operands[2], nan=True, loc=loc, ip=ip))


@dsl_user_op
def pack_half2(low, high, dtype, *, loc=None, ip=None) -> Int32:
    """Two fp32 values to one register of bf16x2 or f16x2, round to nearest even."""
    name = "bf16x2" if dtype is BFloat16 else "f16x2"
    operands = [Float32(x).ir_value(loc=loc, ip=ip) for x in (high, low)]
    return Int32(
        llvm.inline_asm(
            T.i32(), operands, f"cvt.rn.{name}.f32 $0, $1, $2;", "=r,f,f", has_side_effects=False, loc=loc, ip=ip
        )
    )


@dsl_user_op
def select(condition, if_true, if_false, *, loc=None, ip=None):
    """`if_true` where the condition holds: a select instruction, never a branch. Both values have one type."""
    values = [v.ir_value(loc=loc, ip=ip) for v in (if_true, if_false)]
    return type(if_true)(arith.select(Boolean(condition).ir_value(loc=loc, ip=ip), *values, loc=loc, ip=ip))


@dsl_user_op
def float_bits(x, *, loc=None, ip=None) -> Int32:
    """Bit pattern of a Float32."""
    return Int32(llvm.bitcast(T.i32(), Float32(x).ir_value(loc=loc, ip=ip), loc=loc, ip=ip))


@dsl_user_op
def bits_float(x, *, loc=None, ip=None) -> Float32:
    """Float32 with a bit pattern."""
    return Float32(llvm.bitcast(T.f32(), Int32(x).ir_value(loc=loc, ip=ip), loc=loc, ip=ip))


@dsl_user_op
def join_words(low, high, *, loc=None, ip=None) -> Int64:
    """64-bit value of two words."""
    pair = vector.from_elements(
        ir.VectorType.get([2], T.i32()), [x.ir_value(loc=loc, ip=ip) for x in (low, high)], loc=loc, ip=ip
    )
    joined = vector.bitcast(ir.VectorType.get([1], T.i64()), pair, loc=loc, ip=ip)
    return Int64(vector.extract(joined, dynamic_position=[], static_position=[0], loc=loc, ip=ip))


def absolute(x) -> Float32:
    """|x| of a Float32."""
    return bits_float(float_bits(x) & 0x7FFFFFFF)


@dsl_user_op
def store_global_f32(address, value, *, loc=None, ip=None) -> None:
    """st.global.f32 to an Int64 address."""
    pointer = llvm.inttoptr(llvm.PointerType.get(1), Int64(address).ir_value(loc=loc, ip=ip), loc=loc, ip=ip)
    llvm.store(Float32(value).ir_value(loc=loc, ip=ip), pointer, alignment=4, loc=loc, ip=ip)


@dsl_user_op
def load_shared_b32(pointer, *, loc=None, ip=None) -> Int32:
    """ld.shared.b32."""
    return Int32(llvm.load(T.i32(), pointer.to_llvm_ptr(loc=loc, ip=ip), alignment=4, loc=loc, ip=ip))


@dsl_user_op
def store_shared_v4(address, words: list, *, loc=None, ip=None) -> None:
    """st.shared.v4.b32 of four Int32 words to a 16-byte aligned shared address (Int32)."""
    pointer = llvm.inttoptr(llvm.PointerType.get(3), Int32(address).ir_value(loc=loc, ip=ip), loc=loc, ip=ip)
    vector4 = vector.from_elements(
        ir.VectorType.get([4], T.i32()), [w.ir_value(loc=loc, ip=ip) for w in words], loc=loc, ip=ip
    )
    llvm.store(vector4, pointer, alignment=16, loc=loc, ip=ip)


@dsl_user_op
def reread_grid_position(*, loc=None, ip=None) -> Int32:
    """%ctaid.z * %nctaid.x + %ctaid.x, read anew: the compiler may not keep an earlier value alive for it."""
    asm = (
        "{ .reg .b32 x, z, n; mov.u32 x, %ctaid.x; mov.u32 z, %ctaid.z; mov.u32 n, %nctaid.x; mad.lo.s32 $0, z, n, x; }"
    )
    return Int32(llvm.inline_asm(T.i32(), [], asm, "=r", has_side_effects=True, loc=loc, ip=ip))


def minimum(a, b):
    """Smaller of two Int32."""
    return select(a < b, a, b)


def maximum(a, b):
    """Larger of two Int32."""
    return select(a > b, a, b)


@dsl_user_op
def low_bits(count, *, loc=None, ip=None) -> Int32:
    """Word with its `count` low bits set; count <= 0 gives 0, count >= 32 gives all ones."""
    return Int32(
        llvm.inline_asm(
            T.i32(),
            [Int32(count).ir_value(loc=loc, ip=ip)],
            "{ .reg .s32 c; max.s32 c, $1, 0; bmsk.clamp.b32 $0, 0, c; }",
            "=r,r",
            has_side_effects=False,
            loc=loc,
            ip=ip,
        )
    )


def packed(operation, *pairs):
    """One f32x2 instruction on (low, high) pairs, denormals flushed."""
    return operation(*pairs, ftz=True)


def fma2(a, b, c):
    """a * b + c on pairs."""
    return packed(cute.arch.fma_packed_f32x2, a, b, c)


def mul2(a, b):
    """a * b on pairs."""
    return packed(cute.arch.mul_packed_f32x2, a, b)


def add2(a, b):
    """a + b on pairs."""
    return packed(cute.arch.add_packed_f32x2, a, b)
