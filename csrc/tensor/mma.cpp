#include "mma.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "descriptor.h"
#include "half.h"

namespace fa4emu {

namespace {

constexpr int kK = 16;  // K of kind::f16
constexpr int kMaxN = 256;

struct Operand {
    bool bf16, negate, mn_major;
};

inline float decode(uint16_t h, const Operand& op) {
    float value = op.bf16 ? bf16_to_float(h) : f16_to_float(h);
    return op.negate ? -value : value;
}

// Calls visit(address, row, k) for the 16-byte chunks of a rows x 16 operand (the swizzle keeps them whole): eight
// elements along K, or along the rows for an MN-major operand, from (row, k) on.
template <class Visit>
void for_each_chunk(const SmemDescriptor& desc, int rows, bool mn_major, Visit visit) {
    if (!mn_major) {
        uint32_t next =
            desc.mask ? 16 : desc.lbo;  // without swizzle the second 16 bytes of K lie in their own core matrix
        for (int row = 0; row < rows; ++row)
            for (int half = 0; half < 2; ++half)
                visit(swizzled(desc.start + uint32_t(row % 8) * desc.pitch + uint32_t(row / 8) * desc.sbo +
                                   uint32_t(half) * next,
                               desc.mask),
                      row, half * 8);
        return;
    }
    // Without swizzle the roles are swapped: SBO steps along MN, LBO along K.
    int per_atom = int(desc.pitch / 16);
    uint32_t mn_step = desc.mask ? desc.lbo : desc.sbo, k_step = desc.mask ? desc.sbo : desc.lbo;
    for (int k = 0; k < kK; ++k)
        for (int i = 0; i < rows / 8; ++i)
            visit(swizzled(desc.start + uint32_t(i % per_atom) * 16 + uint32_t(i / per_atom) * mn_step +
                               uint32_t(k % 8) * desc.pitch + uint32_t(k / 8) * k_step,
                           desc.mask),
                  i * 8, k);
}

// Calls put(row, k, bits) for all elements of a rows x 16 operand.
template <class Put>
void gather(const SmemDescriptor& desc, const SharedView& shared, int rows, bool mn_major, Put put) {
    for_each_chunk(desc, rows, mn_major, [&](uint32_t address, int row, int k) {
        uint16_t chunk[8];
        std::memcpy(chunk, shared.at(address, 16), 16);
        for (int e = 0; e < 8; ++e) mn_major ? put(row + e, k, chunk[e]) : put(row, k + e, chunk[e]);
    });
}

typedef float Vec __attribute__((vector_size(32), aligned(4), may_alias));

// d[0, 8 * W) += a[0, 16) * b[16][.]; unrolling is forced because otherwise the accumulators spill.
template <int W>
void row_block(float* d, const float* a, const float (*b)[kMaxN]) {
    Vec acc[W];
#pragma GCC unroll 8
    for (int w = 0; w < W; ++w) acc[w] = *reinterpret_cast<const Vec*>(d + 8 * w);
    for (int k = 0; k < kK; ++k) {
        float s = a[k];
        Vec av = {s, s, s, s, s, s, s, s};
#pragma GCC unroll 8
        for (int w = 0; w < W; ++w) acc[w] += av * *reinterpret_cast<const Vec*>(b[k] + 8 * w);
    }
#pragma GCC unroll 8
    for (int w = 0; w < W; ++w) *reinterpret_cast<Vec*>(d + 8 * w) = acc[w];
}

void multiply_row(float* d, const float* a, const float (*b)[kMaxN], int first, int n) {
    int at = 0;
    auto columns = [&](int c) { return reinterpret_cast<const float (*)[kMaxN]>(&b[0][first + c]); };
    for (; at + 64 <= n; at += 64) row_block<8>(d + at, a, columns(at));
    for (; at + 16 <= n; at += 16) row_block<2>(d + at, a, columns(at));
    for (; at < n; at += 8) row_block<1>(d + at, a, columns(at));
}

// One row of D in TMEM: n columns from `column`, product with columns first.. of B.
void update_row(Tmem& tmem, int lane, uint32_t column, int first, int n, const InstructionF16& inst,
                const MmaArgs& args, const float* a, const float (*b)[kMaxN]) {
    uint32_t* words = tmem.row(lane, column, uint32_t(n));
    alignas(32) float row[kMaxN];
    if (!args.accumulate)
        std::fill_n(row, n, 0.0f);
    else if (inst.d_f32)
        std::memcpy(row, words, size_t(n) * 4);
    else
        for (int i = 0; i < n; ++i) row[i] = f16_to_float(uint16_t(words[i]));
    if (args.accumulate && args.scale_input_d)
        for (int i = 0; i < n; ++i) row[i] = std::ldexp(row[i], -args.scale_input_d);
    multiply_row(row, a, b, first, n);
    if (inst.d_f32)
        std::memcpy(words, row, size_t(n) * 4);
    else
        for (int i = 0; i < n; ++i) words[i] = float_to_f16(row[i]);  // one value a column, in the low half
}

// Lane of row m of one CTA's part. 64 rows of a single CTA take 16 lanes of each warp's quarter.
int lane_of(int m, int rows, int cta_group) { return cta_group == 1 && rows == 64 ? m % 16 + 32 * (m / 16) : m; }

void check_lane(const char* operand, uint32_t address, bool half_allowed) {
    uint32_t lane = address >> 16;
    if (lane != 0 && !(half_allowed && lane == 16))
        throw Fault(format("tcgen05.mma: lane %u of %s's TMEM address 0x%08x; wanted 0%s", lane, operand, address,
                           half_allowed ? " or 16" : ""));
}

void gather_tmem(Tmem& tmem, uint32_t address, int rows, int cta_group, const Operand& op, float (*a)[kK]) {
    check_lane("A", address, cta_group == 1 && rows == 64);
    for (int m = 0; m < rows; ++m) {
        const uint32_t* words = tmem.row(lane_of(m, rows, cta_group) + int(address >> 16), address & 0xFFFF, kK / 2);
        for (int k = 0; k < kK; ++k) a[m][k] = decode(uint16_t(words[k / 2] >> (16 * (k % 2))), op);
    }
}

}  // namespace

void mma(const MmaArgs& args) {
    if (args.kind != MmaKind::f16) throw Fault("tcgen05.mma: kinds other than kind::f16 are not supported yet");
    InstructionF16 inst = decode_f16(args.idesc, args.cta_group);
    int ctas = args.cta_group, rows = inst.m / ctas, rows_b = inst.n / ctas;
    bool split_n = ctas == 2 && rows == 64;  // the upper half of N in lanes 64 and up
    if (args.scale_input_d < 0 || args.scale_input_d > 15)
        throw Fault(format("tcgen05.mma: scale-input-d is %d; wanted 0 to 15", args.scale_input_d));
    if (args.a_in_tmem && inst.a_mn_major) throw Fault("tcgen05.mma: A in TMEM must be K-major (idesc bit 15 is set)");
    if (args.a_in_tmem && split_n)
        throw Fault("tcgen05.mma: A in TMEM with cta_group::2 and M 128 is not supported yet");
    if (args.a_in_tmem && (args.a >> 32)) throw Fault("tcgen05.mma: the TMEM address of A has bits above 31");
    check_lane("D", args.d, ctas == 1 && rows == 64);
    for (int c = 0; c < ctas; ++c)
        if (!args.cta[c].shared || !args.cta[c].tmem)
            throw Fault(format("tcgen05.mma: no CTA with rank %d in the pair", c));

    Operand op_a{inst.a_bf16, inst.negate_a, inst.a_mn_major}, op_b{inst.b_bf16, inst.negate_b, inst.b_mn_major};
    alignas(32) static thread_local float b[kK][kMaxN];
    alignas(32) static thread_local float a[2][128][kK];
    SmemDescriptor desc_b = decode_smem(args.b, "B");
    for (int c = 0; c < ctas; ++c) {
        gather(desc_b, *args.cta[c].shared, rows_b, op_b.mn_major,
               [&](int n, int k, uint16_t h) { b[k][c * rows_b + n] = decode(h, op_b); });
        if (args.a_in_tmem) {
            gather_tmem(*args.cta[c].tmem, uint32_t(args.a), rows, ctas, op_a, a[c]);
        } else {
            gather(decode_smem(args.a, "A"), *args.cta[c].shared, rows, op_a.mn_major,
                   [&](int m, int k, uint16_t h) { a[c][m][k] = decode(h, op_a); });
        }
    }
    uint32_t column = args.d & 0xFFFF;
    int lane0 = int(args.d >> 16), width = split_n ? inst.n / 2 : inst.n;
    for (int c = 0; c < ctas; ++c)
        for (int m = 0; m < rows; ++m) {
            update_row(*args.cta[c].tmem, lane0 + lane_of(m, rows, ctas), column, 0, width, inst, args, a[c][m], b);
            if (split_n) update_row(*args.cta[c].tmem, 64 + m, column, width, width, inst, args, a[c][m], b);
        }
}

void visit_mma(const MmaArgs& args, const std::function<void(int, uint32_t)>& shared,
               const std::function<void(int, const TmemBlock&)>& tmem) {
    InstructionF16 inst = decode_f16(args.idesc, args.cta_group);
    int ctas = args.cta_group, rows = inst.m / ctas;
    bool spread = ctas == 1 && rows == 64, split_n = ctas == 2 && rows == 64;
    auto column = [](uint64_t address) { return uint16_t(address & 0xFFFF); };
    // Lanes of M = 64: 16 of each 32 for a single CTA; all of them, N halved, for a pair.
    auto groups = [&](uint64_t address) { return uint8_t(spread ? 0x55 << (address >> 20 & 1) : 0xFF); };
    SmemDescriptor b = decode_smem(args.b, "B");
    for (int c = 0; c < ctas; ++c) {
        for_each_chunk(b, inst.n / ctas, inst.b_mn_major, [&](uint32_t address, int, int) { shared(c, address); });
        if (args.a_in_tmem)
            tmem(c, {groups(args.a), column(args.a), kK / 2, true, false});
        else
            for_each_chunk(decode_smem(args.a, "A"), rows, inst.a_mn_major,
                           [&](uint32_t address, int, int) { shared(c, address); });
        tmem(c, {groups(args.d), column(args.d), uint16_t(split_n ? inst.n / 2 : inst.n), args.accumulate, true});
    }
}

}  // namespace fa4emu
