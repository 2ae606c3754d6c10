// The hot path of the operators: one call from torch's dispatcher, no Python code run.
#pragma once
#include <nanobind/nanobind.h>

#include <array>
#include <memory>
#include <vector>

#include "encodings.h"
#include "kernel.h"
#include "packer.h"
#include "tensors.h"

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

struct CallOptions {
    bool causal = false, has_scale = false, gqa = false, bottom_right = false;
    double scale = 0;
};

// A call that Python has checked and planned once.
struct PlannedCall {
    std::shared_ptr<Packer> packer;
    std::shared_ptr<Kernel> kernel;  // or, where it is empty:
    nb::object sink;                 // called as sink(block, grid) in place of a launch (emulator, tests)
    std::array<uint32_t, 3> grid{};
    std::array<Scalar, kMostScalars> scalars{};
    uint32_t operand_of[4] = {};     // q, k, v, o in the packer's order
    int32_t lse_scalar = -1;         // index of the LSE address
    bool output_like_query = false;  // torch.empty_like(query) has the output's strides
};

// torch's functions and facts, handed over once.
struct Torch {
    nb::object tensor_type, is_grad_enabled, empty_like, output_like, lse_like;
    const DlExchange* exchange = nullptr;
};

// Planned calls by key, shared by the operators. Guarded by the GIL, which is let go of only during the launch itself.
class Calls {
  public:
    Calls(nb::dict torch, nb::object encoder, size_t capacity, size_t encodings);

    // False if the tensors are none that the hot path takes; then nothing is remembered.
    bool remember(nb::handle query, nb::handle key, nb::handle value, const CallOptions& options, PlannedCall call);
    // New reference: the output, or (output, lse). nullptr without a Python error: not known, the caller has to plan.
    // check_bits: nobody has looked at the tensors' dispatch keys.
    PyObject* run(PyObject* const* tensors, const CallOptions& options, bool with_lse, bool check_bits);
    void clear();

    // Of torch's own class, not of a subclass.
    bool is_tensor(PyObject* object) const {
        return Py_TYPE(object) == reinterpret_cast<PyTypeObject*>(torch_.tensor_type.ptr());
    }
    const Torch& torch() const { return torch_; }
    Encodings& encodings() { return encodings_; }
    size_t size() const { return known_.size(); }

  private:
    bool read(PyObject* const* tensors, const CallOptions& options, DlTensor* views, CallKey& key) const;
    PyObject* launch(const PlannedCall& call, PyObject* query, const DlTensor* views, bool with_lse);

    Torch torch_;
    Encodings encodings_;
    Encoder encode_;
    Lru<CallKey, std::shared_ptr<const PlannedCall>> known_;
};

// A kernel for torch's dispatcher, registered with the key set: (keyset, query, key, value, ...). What it does not
// know, or may not do here (gradients, modes, tensor subclasses), it passes on to `otherwise` as it came.
struct FastOp {
    std::shared_ptr<Calls> calls;
    nb::object otherwise;
    bool with_lse = false;
    uint64_t relevant_keys = 0, plain_keys = 0;  // bits of a key set; plain: no mode or wrapper is at work
};
PyObject* fast_op_call(PyObject* self, PyObject* args, PyObject* kwargs);

// The same for callers that need not go through the dispatcher: (query, key, value, attn_mask, dropout_p, is_causal,
// scale, enable_gqa, causal_alignment), by position -> result, or None where the dispatcher has work to do.
struct Direct {
    std::shared_ptr<Calls> calls;
    bool with_lse = false;
    nb::object included_keys;  // () -> key set that this thread adds to every call
    uint64_t harmless_keys = 0;
    nb::list busy;  // () -> true while a call has to be seen by somebody (torch function modes, profiler, autocast)
};
PyObject* direct_call(PyObject* self, PyObject* args, PyObject* kwargs);

// Sets the Python error of the C++ exception being handled.
void translate_current_exception();

PyObject* fast_op_call(PyObject* self, PyObject* args, PyObject* kwargs);

}  // namespace fa4launch
