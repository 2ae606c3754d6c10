#include "fast_call.h"

#include <bit>
#include <cstring>

namespace fa4launch {

namespace {

constexpr uint32_t kTypeBf16 = 9, kTypeFp16 = 6;  // CUtensorMapDataType

uint8_t tensor_map_type(const DlTensor& view) {
    if (view.bits != 16 || view.lanes != 1) return 0;
    return view.code == kDlBfloat ? kTypeBf16 : view.code == kDlFloat ? kTypeFp16 : 0;
}

Operand operand_in(const DlTensor& view) {
    Operand result;
    result.address = view.address();
    std::copy_n(view.shape, 4, result.shape);
    std::copy_n(view.strides, 4, result.strides);
    result.dtype = tensor_map_type(view);
    result.element_bytes = 2;
    return result;
}

nb::object steal_or_throw(PyObject* object) {
    if (!object) throw nb::python_error();
    return nb::steal(object);
}

}  // namespace

Encoder encoder_of(nb::object encode) {
    if (encode.is_none()) return encode_by_driver;
    return [encode](const TensorMapArgs& args) {
        auto list = [](const auto* values, unsigned count) {
            nb::list result;
            for (unsigned i = 0; i < count; ++i) result.append(values[i]);
            return nb::tuple(result);
        };
        nb::object result = encode(nb::make_tuple(
            args.address, args.dtype, args.element_bytes, list(args.dims, args.rank), list(args.strides, args.rank - 1),
            list(args.box, args.rank), list(args.steps, args.rank), args.swizzle, bool(args.oob_nan)));
        nb::bytes bytes = nb::cast<nb::bytes>(result);
        TensorMapBytes map;
        if (bytes.size() != map.size())
            throw std::invalid_argument("encode: got " + std::to_string(bytes.size()) + " bytes, wanted 128");
        std::memcpy(map.data(), bytes.data(), map.size());
        return map;
    };
}

Calls::Calls(nb::dict torch, nb::object encoder, size_t capacity, size_t encodings)
    : torch_{torch["Tensor"], torch["is_grad_enabled"], torch["empty_like"], torch["output_like"], torch["lse_like"]},
      encodings_(encoder_of(encoder), encodings),
      encode_([this](const TensorMapArgs& args) { return encodings_(args); }),
      known_(capacity) {
    torch_.exchange = exchange_of(torch_.tensor_type.ptr());
}

bool Calls::read(PyObject* const* tensors, const CallOptions& options, DlTensor* views, CallKey& key) const {
    int64_t* word = key.words;
    for (int i = 0; i < 3; ++i) {
        DlTensor& view = views[i];
        if (!torch_.exchange || !is_tensor(tensors[i])) return false;
        if (torch_.exchange->borrow(tensors[i], &view)) {
            PyErr_Clear();  // a tensor without storage, say: not for this path
            return false;
        }
        if (view.ndim != 4 || !tensor_map_type(view) || view.address() % 16 || !view.address()) return false;
        *word++ = int64_t(view.code) | int64_t(view.device_type) << 8 | int64_t(view.device_id) << 32;
        std::copy_n(view.shape, 4, word);
        std::copy_n(view.strides, 4, word + 4);
        word += 8;
    }
    *word++ = options.causal | options.has_scale << 1 | options.gqa << 2 | options.bottom_right << 3;
    *word++ = std::bit_cast<int64_t>(options.scale);
    return true;
}

bool Calls::remember(nb::handle query, nb::handle key, nb::handle value, const CallOptions& options, PlannedCall call) {
    PyObject* tensors[3] = {query.ptr(), key.ptr(), value.ptr()};
    DlTensor views[3];
    CallKey call_key;
    if (!read(tensors, options, views, call_key)) return false;
    known_.put(call_key, std::make_shared<const PlannedCall>(std::move(call)));
    return true;
}

// Whether memory holds the negative of a tensor: a lazy imaginary part of a conjugate. Among our types only half
// precision has a complex type to be the part of.
bool is_negated(PyObject* const* tensors, const DlTensor* views) {
    static PyObject* const method = PyUnicode_InternFromString("is_neg");
    for (int i = 0; i < 3; ++i)
        if (views[i].code == kDlFloat &&
            steal_or_throw(PyObject_CallMethodNoArgs(tensors[i], method)).ptr() != Py_False)
            return true;
    return false;
}

PyObject* Calls::run(PyObject* const* tensors, const CallOptions& options, bool with_lse, bool check_bits) {
    DlTensor views[4];
    CallKey key;
    if (!read(tensors, options, views, key)) return nullptr;
    auto found = known_.get(key);
    if (!found) return nullptr;
    if (check_bits && is_negated(tensors, views)) return nullptr;
    std::shared_ptr<const PlannedCall> call = *found;  // another thread may evict it during the launch
    return launch(*call, tensors[0], views, with_lse);
}

PyObject* Calls::launch(const PlannedCall& call, PyObject* query, const DlTensor* views, bool with_lse) {
    const nb::object& allocate = call.output_like_query ? torch_.empty_like : torch_.output_like;
    nb::object out = steal_or_throw(PyObject_CallOneArg(allocate.ptr(), query)), lse;
    DlTensor out_view, lse_view;
    if (torch_.exchange->borrow(out.ptr(), &out_view)) throw nb::python_error();
    uint64_t lse_address = 0;
    if (with_lse) {
        lse = steal_or_throw(PyObject_CallOneArg(torch_.lse_like.ptr(), query));
        if (torch_.exchange->borrow(lse.ptr(), &lse_view)) throw nb::python_error();
        lse_address = lse_view.address();
    }
    Operand operands[4];
    for (int i = 0; i < 3; ++i) operands[call.operand_of[i]] = operand_in(views[i]);
    operands[call.operand_of[3]] = operand_in(out_view);
    std::array<Scalar, kMostScalars> scalars = call.scalars;
    if (call.lse_scalar >= 0) scalars[call.lse_scalar].address = lse_address;
    alignas(64) uint8_t block[kMostParameterBytes];
    call.packer->pack(block, operands, scalars.data(), encode_);
    if (call.kernel) {
        void* stream = nullptr;
        if (torch_.exchange->current_stream(views[0].device_type, views[0].device_id, &stream))
            throw nb::python_error();
        nb::gil_scoped_release release;
        call.kernel->launch(views[0].device_id, static_cast<CUstream>(stream), call.grid, block);
    } else {
        call.sink(nb::bytes(block, call.packer->bytes()), nb::make_tuple(call.grid[0], call.grid[1], call.grid[2]));
    }
    if (with_lse) return nb::make_tuple(out, lse).release().ptr();
    return out.release().ptr();
}

void Calls::clear() {
    known_.clear();
    encodings_.clear();
}

namespace {

bool is_true(PyObject* object, bool& value) {
    value = object == Py_True;
    return value || object == Py_False;
}

// The readers below are false for what the hot path does not take, or what needs the full checks to be refused.

// Leading of (attn_mask, dropout_p, is_causal), as many as there are.
bool read_leading(PyObject* const* items, Py_ssize_t count, CallOptions& options) {
    if (count > 0 && items[0] != Py_None) return false;
    if (count > 1 && (!PyFloat_CheckExact(items[1]) || PyFloat_AS_DOUBLE(items[1]) != 0.0)) return false;
    return count <= 2 || is_true(items[2], options.causal);
}

bool read_scale(PyObject* value, CallOptions& options) {
    if (value == Py_None) return true;
    if (!PyFloat_CheckExact(value)) return false;
    options.has_scale = true;
    options.scale = PyFloat_AS_DOUBLE(value);
    return true;
}

bool read_alignment(PyObject* value, CallOptions& options) {
    if (!PyUnicode_Check(value)) return false;
    options.bottom_right = !PyUnicode_CompareWithASCIIString(value, "bottom_right");
    return options.bottom_right || !PyUnicode_CompareWithASCIIString(value, "top_left");
}

// (keyset, query, key, value[, attn_mask[, dropout_p[, is_causal]]], **others)
bool read_options(PyObject* args, PyObject* kwargs, CallOptions& options) {
    const Py_ssize_t count = PyTuple_GET_SIZE(args);
    if (count < 4 || count > 7 || !read_leading(&PyTuple_GET_ITEM(args, 0) + 4, count - 4, options)) return false;
    PyObject *name, *value;
    for (Py_ssize_t at = 0; kwargs && PyDict_Next(kwargs, &at, &name, &value);) {
        bool taken = false;
        if (!PyUnicode_CompareWithASCIIString(name, "scale"))
            taken = read_scale(value, options);
        else if (!PyUnicode_CompareWithASCIIString(name, "enable_gqa"))
            taken = is_true(value, options.gqa);
        else if (!PyUnicode_CompareWithASCIIString(name, "causal_alignment"))
            taken = read_alignment(value, options);
        if (!taken) return false;
    }
    return true;
}

uint64_t bits_of(PyObject* keyset) {
    static PyObject* const method = PyUnicode_InternFromString("raw_repr");
    return PyLong_AsUnsignedLongLongMask(steal_or_throw(PyObject_CallMethodNoArgs(keyset, method)).ptr());
}

// Whether torch's dispatcher would do nothing below autograd but call the backend's kernel.
bool is_plain(const FastOp& op, PyObject* keyset) { return (bits_of(keyset) & op.relevant_keys) == op.plain_keys; }

bool wants_gradient(const Calls& calls, PyObject* const* tensors) {
    static PyObject* const attribute = PyUnicode_InternFromString("requires_grad");
    for (int i = 0; i < 3; ++i) {
        nb::object wants = steal_or_throw(PyObject_GetAttr(tensors[i], attribute));
        if (wants.ptr() == Py_False) continue;
        return steal_or_throw(PyObject_CallNoArgs(calls.torch().is_grad_enabled.ptr())).ptr() == Py_True;
    }
    return false;
}

// Whether a call may be made without telling torch's dispatcher.
bool nobody_looks(const Direct& direct, PyObject* const* tensors) {
    nb::object included = steal_or_throw(PyObject_CallNoArgs(direct.included_keys.ptr()));
    if (bits_of(included.ptr()) & ~direct.harmless_keys) return false;
    for (nb::handle check : direct.busy)
        if (PyObject_IsTrue(steal_or_throw(PyObject_CallNoArgs(check.ptr())).ptr())) return false;
    for (int i = 0; i < 3; ++i)
        if (!direct.calls->is_tensor(tensors[i])) return false;
    return !wants_gradient(*direct.calls, tensors);
}

}  // namespace

PyObject* fast_op_call(PyObject* self, PyObject* args, PyObject* kwargs) {
    const FastOp& op = *nb::inst_ptr<FastOp>(self);
    try {
        CallOptions options;
        if (read_options(args, kwargs, options)) {
            PyObject* const* items = &PyTuple_GET_ITEM(args, 0);
            if (is_plain(op, items[0]) && !wants_gradient(*op.calls, items + 1))
                if (PyObject* result = op.calls->run(items + 1, options, op.with_lse, false)) return result;
        }
        return PyObject_Call(op.otherwise.ptr(), args, kwargs);
    } catch (nb::python_error& error) {
        error.restore();
    } catch (...) {
        translate_current_exception();
    }
    return nullptr;
}

PyObject* direct_call(PyObject* self, PyObject* args, PyObject*) {
    const Direct& direct = *nb::inst_ptr<Direct>(self);
    try {
        CallOptions options;
        PyObject* const* items = &PyTuple_GET_ITEM(args, 0);
        if (PyTuple_GET_SIZE(args) == 9 && direct.calls->size() && read_leading(items + 3, 3, options) &&
            read_scale(items[6], options) && is_true(items[7], options.gqa) && read_alignment(items[8], options) &&
            nobody_looks(direct, items))
            if (PyObject* result = direct.calls->run(items, options, direct.with_lse, true)) return result;
        Py_RETURN_NONE;
    } catch (nb::python_error& error) {
        error.restore();
    } catch (...) {
        translate_current_exception();
    }
    return nullptr;
}

}  // namespace fa4launch
