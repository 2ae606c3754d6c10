// Reading torch tensors without building against torch: through the table of C functions that DLPack documents
// (__dlpack_c_exchange_api__ on the tensor's type; torch 2.10 and later).
#pragma once
#include <Python.h>

#include <cstdint>

namespace fa4launch {

// DLPack 1.2's types, as far as they are used.
struct DlTensor {
    void* data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;  // elements; alive as long as the tensor
    uint64_t byte_offset;

    uint64_t address() const { return reinterpret_cast<uint64_t>(data) + byte_offset; }
};
static_assert(sizeof(DlTensor) == 56 || sizeof(DlTensor) == 48);

constexpr int kDlCpu = 1, kDlCuda = 2;
constexpr uint8_t kDlFloat = 2, kDlBfloat = 4;

struct DlExchange {
    uint32_t major, minor;
    void* older;
    void *allocate, *from_object, *to_object;  // not used
    int (*borrow)(void* object, DlTensor* out);
    int (*current_stream)(int device_type, int32_t device_id, void** stream);
};

// The table of a tensor type, nullptr if it has none that this reads (no Python error is left behind).
const DlExchange* exchange_of(PyObject* tensor_type);

}  // namespace fa4launch
