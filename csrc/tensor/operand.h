// Operands of tcgen05.mma: element formats, and where an operand's elements lie in shared and tensor memory.
#pragma once

#include <cstdint>
#include <cstring>

#include "descriptor.h"
#include "half.h"

namespace fa4emu {

// Values of the 8-, 6- and 4-bit formats by their bits; e4m3 has NaN but no Inf, the 6- and 4-bit formats neither.
struct SmallFloats {
    float e4m3[256], e5m2[256], e2m3[64], e3m2[64], e2m1[16];
    SmallFloats();
};
extern const SmallFloats kSmallFloats;

constexpr int per_chunk(Format f) { return f == Format::f16 || f == Format::bf16 ? 8 : f == Format::tf32 ? 4 : 16; }

// Every operand has 32 bytes of K, read as two chunks of 16 bytes. A chunk of a 6- or 4-bit format in shared memory
// holds 16 elements packed in its low 12 or 8 bytes, the rest is padding (PTX ISA, packing formats).
template <Format F>
constexpr int kPerChunk = F == Format::f16 || F == Format::bf16 ? 8
                          : F == Format::tf32                   ? 4
                                                                : 16;

template <Format F>
inline float value_at(const uint8_t* chunk, int e) {
    if constexpr (F == Format::f16 || F == Format::bf16) {
        uint16_t bits;
        std::memcpy(&bits, chunk + 2 * e, 2);
        return F == Format::bf16 ? bf16_to_float(bits) : f16_to_float(bits);
    } else if constexpr (F == Format::tf32) {
        uint32_t bits;
        std::memcpy(&bits, chunk + 4 * e, 4);
        return std::bit_cast<float>(bits & 0xFFFFE000u);  // the low 13 bits of the word are not part of the format
    } else if constexpr (F == Format::e4m3) {
        return kSmallFloats.e4m3[chunk[e]];
    } else if constexpr (F == Format::e5m2) {
        return kSmallFloats.e5m2[chunk[e]];
    } else if constexpr (F == Format::u8) {
        return float(chunk[e]);
    } else if constexpr (F == Format::s8) {
        return float(int8_t(chunk[e]));
    } else if constexpr (F == Format::e2m1) {
        return kSmallFloats.e2m1[chunk[e / 2] >> (4 * (e % 2)) & 15];
    } else {
        uint16_t pair;  // 6 bits from bit 6 e on; they never reach past the second byte
        std::memcpy(&pair, chunk + 6 * e / 8, 2);
        int bits = pair >> (6 * e % 8) & 63;
        return F == Format::e2m3 ? kSmallFloats.e2m3[bits] : kSmallFloats.e3m2[bits];
    }
}

// Calls visit(address, mn, k) for the 16-byte chunks of a rows x K operand with `count` elements a chunk (the swizzle
// keeps chunks whole): they lie along K, or along MN for an MN-major operand, from (mn, k) on.
template <class Visit>
inline void for_each_chunk(const SmemDescriptor& desc, int rows, int count, bool mn_major, Visit visit) {
    auto at = [&](uint32_t address) { return swizzled(address, desc.mask, desc.shift); };
    if (!mn_major) {
        // Without swizzle the second 16 bytes of K lie in their own core matrix.
        uint32_t next = desc.mask ? 16 : desc.lbo;
        for (int row = 0; row < rows; ++row)
            for (int half = 0; half < 2; ++half)
                visit(at(desc.start + uint32_t(row % 8) * desc.pitch + uint32_t(row / 8) * desc.sbo +
                         uint32_t(half) * next),
                      row, half * count);
        return;
    }
    // Without swizzle the roles are swapped: SBO steps along MN, LBO along K.
    int per_atom = int(desc.pitch / 16);
    uint32_t mn_step = desc.mask ? desc.lbo : desc.sbo, k_step = desc.mask ? desc.sbo : desc.lbo;
    for (int k = 0; k < 2 * count; ++k)
        for (int i = 0; i < rows / count; ++i)
            visit(at(desc.start + uint32_t(i % per_atom) * 16 + uint32_t(i / per_atom) * mn_step +
                     uint32_t(k % desc.atom_k) * desc.pitch + uint32_t(k / desc.atom_k) * k_step),
                  i * count, k);
}

// Element (mn, k) of an operand in shared memory goes to out[mn * MnStride + k * KStride]. One of the strides is 1.
template <Format F, int MnStride, int KStride>
void gather(const SmemDescriptor& desc, const SharedView& shared, int rows, bool mn_major, float sign, float* out) {
    for_each_chunk(desc, rows, kPerChunk<F>, mn_major, [&](uint32_t address, int mn, int k) {
        const uint8_t* chunk = shared.at(address, 16);
        float* to = out + mn * MnStride + k * KStride;
        if (mn_major)
            for (int e = 0; e < kPerChunk<F>; ++e) to[e * MnStride] = sign * value_at<F>(chunk, e);
        else
            for (int e = 0; e < kPerChunk<F>; ++e) to[e * KStride] = sign * value_at<F>(chunk, e);
    });
}

// One row of A in tensor memory: 32 bytes in 8 columns. 6- and 4-bit elements have a byte each there, 4 bits in bits 2
// to 5 of it.
template <Format F>
void unpack_row(const uint32_t* words, float sign, float* out) {
    const uint8_t* bytes = reinterpret_cast<const uint8_t*>(words);
    for (int i = 0; i < 2 * kPerChunk<F>; ++i) {
        if constexpr (F == Format::e2m1)
            out[i] = sign * kSmallFloats.e2m1[bytes[i] >> 2 & 15];
        else if constexpr (F == Format::e2m3 || F == Format::e3m2)
            out[i] = sign * (F == Format::e2m3 ? kSmallFloats.e2m3 : kSmallFloats.e3m2)[bytes[i] & 63];
        else
            out[i] = sign * value_at<F>(bytes, i);
    }
}

// Calls f.operator()<F>() with the format as a constant, if that format has K elements in 32 bytes.
template <int K, class Function>
void with_format(Format format, Function f) {
    auto call = [&]<Format F>() {
        if constexpr (2 * kPerChunk<F> == K) f.template operator()<F>();
    };
    switch (format) {
        case Format::f16:
            return call.template operator()<Format::f16>();
        case Format::bf16:
            return call.template operator()<Format::bf16>();
        case Format::tf32:
            return call.template operator()<Format::tf32>();
        case Format::e4m3:
            return call.template operator()<Format::e4m3>();
        case Format::e5m2:
            return call.template operator()<Format::e5m2>();
        case Format::e2m3:
            return call.template operator()<Format::e2m3>();
        case Format::e3m2:
            return call.template operator()<Format::e3m2>();
        case Format::e2m1:
            return call.template operator()<Format::e2m1>();
        case Format::u8:
            return call.template operator()<Format::u8>();
        case Format::s8:
            return call.template operator()<Format::s8>();
    }
}

}  // namespace fa4emu
