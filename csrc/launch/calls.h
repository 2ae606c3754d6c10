// Calls that were planned once, by what tells calls apart: the table behind the hot path of the operators.
#pragma once
#include <nanobind/nanobind.h>

#include <array>
#include <memory>
#include <mutex>

#include "encodings.h"
#include "kernel.h"
#include "known_calls.h"
#include "packer.h"

namespace fa4launch {

namespace nb = nanobind;

// None: by the driver. Else a callable that takes (address, dtype code, bytes an element, dims, strides in bytes, box,
// element strides, swizzle code, NaN fill) and returns 128 bytes.
Encoder encoder_of(nb::object encode);

// What a call is keyed by: everything but the addresses.
struct CallKey {
    int64_t words[29] = {};
    bool operator==(const CallKey& other) const { return !std::memcmp(words, other.words, sizeof words); }
};

// A call that Python has checked and planned once.
struct PlannedCall {
    std::shared_ptr<Packer> packer;
    std::shared_ptr<Kernel> kernel;  // or, where it is empty:
    std::shared_ptr<PyObject> sink;  // called as sink(block, grid) in place of a launch (emulator, tests)
    std::array<uint32_t, 3> grid{};
    std::array<Scalar, kMostScalars> scalars{};
    uint32_t operand_of[4] = {};     // q, k, v, o in the packer's order
    int32_t lse_offset = -1;         // of the LSE's address in the block, bytes
    bool output_like_query = false;  // torch.empty_like(query) has the output's strides
    int64_t output_strides[4] = {};  // elements

    // From these: the block but for addresses, and the tensor maps with q, k, v, o as sources 0 to 3.
    std::vector<uint8_t> block;
    std::vector<BlockMap> maps;
    void prepare(const DlTensor* tensors);
};

// Needs no GIL.
class Calls {
  public:
    Calls(const DlExchange* exchange, nb::object encoder, size_t capacity, size_t encodings);

    // False if the tensors are none that the hot path takes; then nothing is remembered.
    bool remember(const DlTensor* tensors, const CallOptions& options, PlannedCall call);
    // The call with these query, key and value; nullptr: not known, Python has to plan it.
    std::shared_ptr<const PlannedCall> find(const DlTensor* tensors, const CallOptions& options);
    // On the current stream. tensors: query, key, value, output; lse: address, 0 for none.
    void launch(const PlannedCall& call, const DlTensor* tensors, uint64_t lse);
    void clear();

    const DlExchange* exchange() const { return exchange_; }
    Encodings& encodings() { return encodings_; }
    size_t size();

  private:
    const DlExchange* exchange_;
    Encodings encodings_;
    std::mutex mutex_;  // of known_
    Lru<CallKey, std::shared_ptr<const PlannedCall>> known_;
};

}  // namespace fa4launch
