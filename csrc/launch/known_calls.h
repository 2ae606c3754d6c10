// What the operators' kernels (csrc/operator, an extension of its own) see of the launcher.
#pragma once
#include <Python.h>

#include <cstdint>
#include <memory>

#include "tensors.h"

namespace fa4launch {

struct CallOptions {
    bool causal = false, has_scale = false, gqa = false, bottom_right = false;
    double scale = 0;
};

// In a capsule of this name, which counts changes of what is below. Both extensions are built together, so that C++
// types may cross; a stale one is refused by the name.
constexpr const char* kKnownCalls = "fa4_cute.known_calls.2";

struct KnownCalls {
    std::shared_ptr<void> table;
    // The call with this query, key and value, and the strides of its output in elements; empty: it is not known.
    std::shared_ptr<const void> (*find)(void* table, const DlTensor* tensors, const CallOptions& options,
                                        int64_t* output_strides);
    // tensors: query, key, value, output; lse: address, 0 for none. nullptr, or a new reference to the exception to
    // raise (not Python's error indicator: a thread that is not Python's own has one only while it holds the GIL).
    PyObject* (*launch)(void* table, const void* call, const DlTensor* tensors, uint64_t lse);
};

}  // namespace fa4launch
