#include "fast_call.h"

namespace fa4launch {

namespace {

nb::object steal_or_throw(PyObject* object) {
    if (!object) throw nb::python_error();
    return nb::steal(object);
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

// The error that is set, as a new reference; none is set any more.
PyObject* take_error() {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback) PyException_SetTraceback(value, traceback);
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
}

}  // namespace

Table::Table(nb::dict torch, nb::object encoder, size_t capacity, size_t encodings)
    : torch_{torch["Tensor"],      torch["is_grad_enabled"], torch["empty_like"],
             torch["output_like"], torch["lse_like"],        nb::cast<nb::dict>(torch["forward_ad"])},
      calls_(std::make_shared<Calls>(exchange_of(torch_.tensor_type.ptr()), encoder, capacity, encodings)) {}

bool Table::read(PyObject* const* tensors, DlTensor* views) const {
    const DlExchange* exchange = calls_->exchange();
    for (int i = 0; i < 3; ++i) {
        if (!exchange || !is_tensor(tensors[i])) return false;
        if (!exchange->borrow(tensors[i], &views[i])) continue;
        PyErr_Clear();  // a tensor without storage, say: not for this path
        return false;
    }
    return true;
}

bool Table::remember(PyObject* const* tensors, const CallOptions& options, PlannedCall call) {
    DlTensor views[3];
    return read(tensors, views) && calls_->remember(views, options, std::move(call));
}

PyObject* Table::run(PyObject* const* tensors, const CallOptions& options, bool with_lse, bool check_bits) {
    DlTensor views[4], lse_view;
    if (!read(tensors, views)) return nullptr;
    auto call = calls_->find(views, options);
    if (!call || (check_bits && is_negated(tensors, views))) return nullptr;
    const nb::object& allocate = call->output_like_query ? torch_.empty_like : torch_.output_like;
    nb::object out = steal_or_throw(PyObject_CallOneArg(allocate.ptr(), tensors[0])), lse;
    if (calls_->exchange()->borrow(out.ptr(), &views[3])) throw nb::python_error();
    uint64_t lse_address = 0;
    if (with_lse) {
        lse = steal_or_throw(PyObject_CallOneArg(torch_.lse_like.ptr(), tensors[0]));
        if (calls_->exchange()->borrow(lse.ptr(), &lse_view)) throw nb::python_error();
        lse_address = lse_view.address();
    }
    {
        nb::gil_scoped_release release;
        calls_->launch(*call, views, lse_address);
    }
    if (with_lse) return nb::make_tuple(out, lse).release().ptr();
    return out.release().ptr();
}

nb::capsule Table::known_calls() const {
    auto find = [](void* table, const DlTensor* tensors, const CallOptions& options, int64_t* strides) {
        auto call = static_cast<Calls*>(table)->find(tensors, options);
        if (call) std::copy_n(call->output_strides, 4, strides);
        return std::shared_ptr<const void>(call);
    };
    auto launch = [](void* table, const void* call, const DlTensor* tensors, uint64_t lse) -> PyObject* {
        try {
            static_cast<Calls*>(table)->launch(*static_cast<const PlannedCall*>(call), tensors, lse);
            return nullptr;
        } catch (nb::python_error& error) {
            nb::gil_scoped_acquire gil;
            error.restore();
            return take_error();
        } catch (...) {
            nb::gil_scoped_acquire gil;
            translate_current_exception();
            return take_error();
        }
    };
    auto* table = new KnownCalls{calls_, find, launch};
    return nb::capsule(table, kKnownCalls, [](void* self) noexcept { delete static_cast<KnownCalls*>(self); });
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

// Whether forward-mode AD is at work anywhere: then any tensor may have a tangent.
bool tangents_may_be(const Table& table) {
    static PyObject* const variable = PyUnicode_InternFromString("_current_level");
    PyObject* level = PyDict_GetItemWithError(table.torch().forward_ad.ptr(), variable);  // -1: no level is open
    if (level && PyLong_Check(level)) return PyLong_AsLong(level) >= 0;
    PyErr_Clear();
    return true;
}

bool wants_derivative(const Table& table, PyObject* const* tensors) {
    if (tangents_may_be(table)) return true;
    static PyObject* const attribute = PyUnicode_InternFromString("requires_grad");
    for (int i = 0; i < 3; ++i) {
        nb::object wants = steal_or_throw(PyObject_GetAttr(tensors[i], attribute));
        if (wants.ptr() == Py_False) continue;
        return steal_or_throw(PyObject_CallNoArgs(table.torch().is_grad_enabled.ptr())).ptr() == Py_True;
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
        if (!direct.table->is_tensor(tensors[i])) return false;
    return !wants_derivative(*direct.table, tensors);
}

}  // namespace

PyObject* fast_op_call(PyObject* self, PyObject* args, PyObject* kwargs) {
    const FastOp& op = *nb::inst_ptr<FastOp>(self);
    try {
        CallOptions options;
        if (read_options(args, kwargs, options)) {
            PyObject* const* items = &PyTuple_GET_ITEM(args, 0);
            if (is_plain(op, items[0]) && !wants_derivative(*op.table, items + 1))
                if (PyObject* result = op.table->run(items + 1, options, op.with_lse, false)) return result;
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
        if (PyTuple_GET_SIZE(args) == 9 && direct.table->calls().size() && read_leading(items + 3, 3, options) &&
            read_scale(items[6], options) && is_true(items[7], options.gqa) && read_alignment(items[8], options) &&
            nobody_looks(direct, items))
            if (PyObject* result = direct.table->run(items, options, direct.with_lse, true)) return result;
        Py_RETURN_NONE;
    } catch (nb::python_error& error) {
        error.restore();
    } catch (...) {
        translate_current_exception();
    }
    return nullptr;
}

}  // namespace fa4launch
