// The hot path of the operators: one call from torch's dispatcher, no Python code run.
#pragma once
#include <nanobind/nanobind.h>

#include "calls.h"

namespace fa4launch {

// torch's functions and facts, handed over once.
struct Torch {
    nb::object tensor_type, is_grad_enabled, empty_like, output_like, lse_like;
    nb::dict forward_ad;  // variables of torch.autograd.forward_ad
};

// Planned calls for Python objects.
class Table {
  public:
    Table(nb::dict torch, nb::object encoder, size_t capacity, size_t encodings);

    bool remember(PyObject* const* tensors, const CallOptions& options, PlannedCall call);
    // New reference: the output, or (output, lse). nullptr without a Python error: not known, the caller has to plan.
    // check_bits: nobody has looked at the tensors' dispatch keys.
    PyObject* run(PyObject* const* tensors, const CallOptions& options, bool with_lse, bool check_bits);
    nb::capsule known_calls() const;  // for csrc/operator

    // Of torch's own class, not of a subclass.
    bool is_tensor(PyObject* object) const {
        return Py_TYPE(object) == reinterpret_cast<PyTypeObject*>(torch_.tensor_type.ptr());
    }
    const Torch& torch() const { return torch_; }
    Calls& calls() { return *calls_; }

  private:
    bool read(PyObject* const* tensors, DlTensor* views) const;

    Torch torch_;
    std::shared_ptr<Calls> calls_;
};

// A kernel for torch's dispatcher, registered with the key set: (keyset, query, key, value, ...). What it does not
// know, or may not do here (gradients, modes, tensor subclasses), it passes on to `otherwise` as it came.
struct FastOp {
    std::shared_ptr<Table> table;
    nb::object otherwise;
    bool with_lse = false;
    uint64_t relevant_keys = 0, plain_keys = 0;  // bits of a key set; plain: no mode or wrapper is at work
};
PyObject* fast_op_call(PyObject* self, PyObject* args, PyObject* kwargs);

// The same for callers that need not go through the dispatcher: (query, key, value, attn_mask, dropout_p, is_causal,
// scale, enable_gqa, causal_alignment), by position -> result, or None where the dispatcher has work to do.
struct Direct {
    std::shared_ptr<Table> table;
    bool with_lse = false;
    nb::object included_keys;  // () -> key set that this thread adds to every call
    uint64_t harmless_keys = 0;
    nb::list busy;  // () -> true while a call has to be seen by somebody (torch function modes, profiler, autocast)
};
PyObject* direct_call(PyObject* self, PyObject* args, PyObject* kwargs);

// Sets the Python error of the C++ exception being handled.
void translate_current_exception();

}  // namespace fa4launch
