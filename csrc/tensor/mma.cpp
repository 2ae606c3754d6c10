#include "mma.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "operand.h"

namespace fa4emu {

namespace {

constexpr int kMaxN = 256;

#ifdef __AVX512F__
constexpr int kWide = 16;
#else
constexpr int kWide = 8;
#endif
// Vectors at any float's address. A template argument would lose the attributes, hence the structs.
template <int N>
struct Floats {
    typedef float Vec __attribute__((vector_size(4 * N), aligned(4), may_alias));
};

// d += a[0, K) * b[K][.] on W vectors; unrolling is forced because otherwise the accumulators spill.
template <int N, int W, int K>
void row_block(float* d, const float* a, const float (*b)[kMaxN]) {
    using V = typename Floats<N>::Vec;
    V acc[W];
#pragma GCC unroll 8
    for (int w = 0; w < W; ++w) acc[w] = *reinterpret_cast<const V*>(d + N * w);
    for (int k = 0; k < K; ++k) {
        V av = a[k] - V{};
#pragma GCC unroll 8
        for (int w = 0; w < W; ++w) acc[w] += av * *reinterpret_cast<const V*>(b[k] + N * w);
    }
#pragma GCC unroll 8
    for (int w = 0; w < W; ++w) *reinterpret_cast<V*>(d + N * w) = acc[w];
}

template <int K>
void multiply_row(float* d, const float* a, const float (*b)[kMaxN], int first, int n) {
    constexpr int wide = 8 * kWide;
    int at = 0;
    auto columns = [&](int c) { return reinterpret_cast<const float (*)[kMaxN]>(&b[0][first + c]); };
    for (; at + wide <= n; at += wide) row_block<kWide, 8, K>(d + at, a, columns(at));
    for (; at + 16 <= n; at += 16) row_block<8, 2, K>(d + at, a, columns(at));
    for (; at < n; at += 8) row_block<8, 1, K>(d + at, a, columns(at));
}

// Four rows of D, `stride` words apart, at once: each vector of B is loaded once for them.
template <int K>
void multiply_rows(float* d, size_t stride, const float (*a)[K], const float (*b)[kMaxN], int n) {
    using V = typename Floats<kWide>::Vec;
    constexpr int W = kWide / 4, kRows = 4;  // as many accumulators as there are registers for
    for (int at = 0; at < n; at += kWide * W) {
        V acc[kRows][W];
        auto place = [&](int r, int w) -> float* { return d + size_t(r) * stride + at + kWide * w; };
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
            for (int w = 0; w < W; ++w) acc[r][w] = *reinterpret_cast<const V*>(place(r, w));
        for (int k = 0; k < K; ++k)
#pragma GCC unroll 4
            for (int w = 0; w < W; ++w) {
                V bv = *reinterpret_cast<const V*>(b[k] + at + kWide * w);
#pragma GCC unroll 4
                for (int r = 0; r < kRows; ++r) acc[r][w] += (a[r][k] - V{}) * bv;
            }
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
            for (int w = 0; w < W; ++w) *reinterpret_cast<V*>(place(r, w)) = acc[r][w];
    }
}

// Sums of 32 products of bytes are below 2^24, so `products` is exact.
void add_integers(uint32_t* words, const float* products, int n, bool accumulate, bool saturate) {
    constexpr int64_t least = std::numeric_limits<int32_t>::min(), most = std::numeric_limits<int32_t>::max();
    for (int i = 0; i < n; ++i) {
        int64_t sum = int64_t(products[i]) + (accumulate ? int32_t(words[i]) : 0);
        words[i] = uint32_t(saturate ? std::clamp(sum, least, most) : sum);
    }
}

// One row of D in TMEM: n columns from `column`, product with columns first.. of B.
template <int K>
void update_row(uint32_t* words, int first, int n, const Instruction& inst, const MmaArgs& args, const float* a,
                const float (*b)[kMaxN]) {
    if (inst.d == Accumulator::f32 && !args.scale_input_d) {  // the usual case, in place
        if (!args.accumulate) std::fill_n(words, n, 0u);
        return multiply_row<K>(reinterpret_cast<float*>(words), a, b, first, n);
    }
    alignas(32) float row[kMaxN];
    if (!args.accumulate || inst.d == Accumulator::s32)
        std::fill_n(row, n, 0.0f);
    else if (inst.d == Accumulator::f32)
        std::memcpy(row, words, size_t(n) * 4);
    else
        for (int i = 0; i < n; ++i) row[i] = f16_to_float(uint16_t(words[i]));
    if (args.accumulate && args.scale_input_d)
        for (int i = 0; i < n; ++i) row[i] = std::ldexp(row[i], -args.scale_input_d);
    multiply_row<K>(row, a, b, first, n);
    if (inst.d == Accumulator::f32)
        std::memcpy(words, row, size_t(n) * 4);
    else if (inst.d == Accumulator::s32)
        add_integers(words, row, n, args.accumulate, inst.saturate);
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

void check(const MmaArgs& args, const Instruction& inst, bool split_n, int rows) {
    bool half_lanes = args.cta_group == 1 && rows == 64;
    if (args.scale_input_d < 0 || args.scale_input_d > 15)
        throw Fault(format("tcgen05.mma: scale-input-d is %d; wanted 0 to 15", args.scale_input_d));
    if (args.scale_input_d && args.kind != MmaKind::f16 && args.kind != MmaKind::tf32)
        throw Fault("tcgen05.mma: scale-input-d is for kind::f16 and kind::tf32 only");
    check_lane("D", args.d, half_lanes);
    for (int c = 0; c < args.cta_group; ++c)
        if (!args.cta[c].shared || !args.cta[c].tmem)
            throw Fault(format("tcgen05.mma: no CTA with rank %d in the pair", c));
    if (!args.a_in_tmem) return;
    if (inst.a_mn_major) throw Fault("tcgen05.mma: A in TMEM must be K-major (idesc bit 15 is set)");
    if (split_n) throw Fault("tcgen05.mma: A in TMEM with cta_group::2 and M 128 is not supported yet");
    if (args.a >> 32) throw Fault("tcgen05.mma: the TMEM address of A has bits above 31");
    check_lane("A", uint32_t(args.a), half_lanes);
    if (uint32_t(args.a) >> 16 != args.d >> 16)
        throw Fault("tcgen05.mma: with M 64, A and D must start at the same TMEM lane");
}

template <int K>
void multiply(const MmaArgs& args, const Instruction& inst) {
    int ctas = args.cta_group, rows = inst.m / ctas, rows_b = inst.n / ctas;
    bool split_n = ctas == 2 && rows == 64;  // the upper half of N in lanes 64 and up
    check(args, inst, split_n, rows);
    alignas(32) static thread_local float b[K][kMaxN];
    alignas(32) static thread_local float a[2][128][K];
    SmemDescriptor desc_a{}, desc_b = decode_smem(args.b, "B");
    check_layout(desc_b, inst.b, inst.b_mn_major, "B");
    if (!args.a_in_tmem) {
        desc_a = decode_smem(args.a, "A");
        check_layout(desc_a, inst.a, inst.a_mn_major, "A");
    }
    float sign_a = inst.negate_a ? -1.0f : 1.0f, sign_b = inst.negate_b ? -1.0f : 1.0f;
    for (int c = 0; c < ctas; ++c) {
        const MmaCta& cta = args.cta[c];
        with_format<K>(inst.b, [&]<Format F>() {
            gather<F, 1, kMaxN>(desc_b, *cta.shared, rows_b, inst.b_mn_major, sign_b, &b[0][c * rows_b]);
        });
        with_format<K>(inst.a, [&]<Format F>() {
            if (!args.a_in_tmem)
                return gather<F, K, 1>(desc_a, *cta.shared, rows, inst.a_mn_major, sign_a, &a[c][0][0]);
            uint32_t address = uint32_t(args.a);
            for (int m = 0; m < rows; ++m) {
                int lane = lane_of(m, rows, ctas) + int(address >> 16);
                unpack_row<F>(cta.tmem->row(lane, address & 0xFFFF, 8), sign_a, a[c][m]);
            }
        });
    }
    uint32_t column = args.d & 0xFFFF;
    int lane0 = int(args.d >> 16), width = split_n ? inst.n / 2 : inst.n;
    bool plain = inst.d == Accumulator::f32 && !args.scale_input_d && rows == 128 && width % (kWide * kWide / 4) == 0 &&
                 std::all_of(std::begin(args.disabled), std::end(args.disabled), [](uint32_t d) { return d == 0; });
    for (int c = 0; c < ctas; ++c) {
        for (int m = 0; plain && m < rows; m += 4) {
            uint32_t* words[4];
            for (int r = 0; r < 4; ++r) {
                words[r] = args.cta[c].tmem->row(lane0 + m + r, column, uint32_t(width));
                if (!args.accumulate) std::fill_n(words[r], width, 0u);
            }
            multiply_rows<K>(reinterpret_cast<float*>(words[0]), Tmem::kColumns, &a[c][m], b, width);
        }
        if (plain) continue;
        auto update = [&](int lane, int m, int first) {
            if (args.disabled[4 * c + lane / 32] >> (lane % 32) & 1) return;
            uint32_t* words = args.cta[c].tmem->row(lane, column, uint32_t(width));
            update_row<K>(words, first, width, inst, args, a[c][m], b);
        };
        for (int m = 0; m < rows; ++m) {
            update(lane0 + lane_of(m, rows, ctas), m, 0);
            if (split_n) update(64 + m, m, width);
        }
    }
}

}  // namespace

void mma(const MmaArgs& args) {
    Instruction inst = decode_instruction(args.kind, args.idesc, args.cta_group);
    if (args.kind == MmaKind::f16) return multiply<16>(args, inst);
    if (args.kind == MmaKind::tf32) return multiply<8>(args, inst);
    multiply<32>(args, inst);
}

void visit_mma(const MmaArgs& args, const std::function<void(int, uint32_t)>& shared,
               const std::function<void(int, const TmemBlock&)>& tmem) {
    Instruction inst = decode_instruction(args.kind, args.idesc, args.cta_group);
    int ctas = args.cta_group, rows = inst.m / ctas;
    bool spread = ctas == 1 && rows == 64, split_n = ctas == 2 && rows == 64;
    auto column = [](uint64_t address) { return uint16_t(address & 0xFFFF); };
    // Lanes of M = 64: 16 of each 32 for a single CTA; all of them, N halved, for a pair.
    auto groups = [&](uint64_t address) { return uint8_t(spread ? 0x55 << (address >> 20 & 1) : 0xFF); };
    auto enabled = [&](int c) {  // groups of 16 lanes that are not disabled as a whole
        int out = 0;
        for (int g = 0; g < 8; ++g) out |= int((~args.disabled[4 * c + g / 2] >> (16 * (g % 2)) & 0xFFFF) != 0) << g;
        return uint8_t(out);
    };
    SmemDescriptor b = decode_smem(args.b, "B");
    for (int c = 0; c < ctas; ++c) {
        auto read = [&](uint32_t address, int, int) { shared(c, address); };
        for_each_chunk(b, inst.n / ctas, per_chunk(inst.b), inst.b_mn_major, read);
        if (args.a_in_tmem)
            tmem(c, {groups(args.a), column(args.a), 8, true, false});
        else
            for_each_chunk(decode_smem(args.a, "A"), rows, per_chunk(inst.a), inst.a_mn_major, read);
        tmem(c, {uint8_t(groups(args.d) & enabled(c)), column(args.d), uint16_t(split_n ? inst.n / 2 : inst.n),
                 args.accumulate, true});
    }
}

}  // namespace fa4emu
