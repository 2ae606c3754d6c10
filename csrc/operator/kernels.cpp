// The operators' kernels in C++. A call that was planned once is launched from here without Python; anything else goes
// to the Python kernel. What src/fa4_cute/fast.py registers where this extension fits the torch that runs.
//
// Built against one torch version's headers, unlike the launcher, because only these give a kernel the dispatcher's key
// set and `requires_grad`.
#include <ATen/RedispatchFunctions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include "../launch/known_calls.h"

namespace py = pybind11;

namespace {

using at::Tensor;
using Both = std::tuple<Tensor, Tensor>;  // output, LSE
using fa4launch::DlTensor;
using fa4launch::KnownCalls;

// Arguments behind query, key and value, as the schema has them.
struct Options {
    const std::optional<Tensor>& attn_mask;
    double dropout_p;
    bool is_causal;
    std::optional<double> scale;
    bool enable_gqa;
    std::string_view causal_alignment;
};

// Python's kernels, called as kernel(None, query, key, value, attn_mask, ..., scale=, enable_gqa=, causal_alignment=).
// Never freed: torch keeps the kernels until the process ends.
struct PythonKernels {
    py::handle backend, autograd;
};

template <class Result>
Result call_python(py::handle kernel, const Tensor& query, const Tensor& key, const Tensor& value, const Options& o) {
    py::gil_scoped_acquire gil;
    return py::cast<Result>(kernel(py::none(), query, key, value, o.attn_mask, o.dropout_p, o.is_causal,
                                   py::arg("scale") = o.scale, py::arg("enable_gqa") = o.enable_gqa,
                                   py::arg("causal_alignment") = o.causal_alignment));
}

DlTensor view_of(const Tensor& tensor) {
    DlTensor view{};
    view.data = const_cast<void*>(tensor.const_data_ptr());
    view.device_type = tensor.is_cuda() ? fa4launch::kDlCuda : fa4launch::kDlCpu;
    view.device_id = std::max<int32_t>(0, tensor.device().index());
    view.ndim = int32_t(tensor.dim());
    view.code = tensor.scalar_type() == at::kBFloat16 ? fa4launch::kDlBfloat : fa4launch::kDlFloat;
    view.bits = tensor.is_floating_point() ? uint8_t(8 * tensor.element_size()) : 0;
    view.lanes = 1;
    view.shape = const_cast<int64_t*>(tensor.sizes().data());
    view.strides = const_cast<int64_t*>(tensor.strides().data());
    return view;
}

// False: the hot path does not take such options, or they have to be checked first.
bool read(const Options& from, fa4launch::CallOptions& to) {
    to.bottom_right = from.causal_alignment == "bottom_right";
    if (from.attn_mask || from.dropout_p != 0 || (!to.bottom_right && from.causal_alignment != "top_left"))
        return false;
    to.causal = from.is_causal;
    to.gqa = from.enable_gqa;
    to.has_scale = from.scale.has_value();
    to.scale = from.scale.value_or(0);
    return true;
}

// A tensor on the query's device. Straight from the backend: nothing above it is left to see this call.
Tensor allocate(const Tensor& query, at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype) {
    c10::DispatchKeySet backend(query.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU);
    return at::redispatch::empty_strided(backend, sizes, strides, query.options().dtype(dtype));
}

bool wants_derivative(const Tensor& tensor) {
    return (tensor.requires_grad() && at::GradMode::is_enabled()) || tensor._fw_grad(0).defined();
}

// Launches a known call: its output, and its LSE if `lse`. Undefined: not known.
Both launch(const KnownCalls& known, const Tensor& query, const Tensor& key, const Tensor& value,
            const Options& options, bool with_lse) {
    fa4launch::CallOptions read_options;
    if (!read(options, read_options)) return {};
    DlTensor views[] = {view_of(query), view_of(key), view_of(value), {}};
    int64_t strides[4];
    auto call = known.find(known.table.get(), views, read_options, strides);
    if (!call) return {};
    Both results;
    auto& [out, lse] = results;
    out = allocate(query, query.sizes(), strides, query.scalar_type());
    if (with_lse) {
        const int64_t heads = query.size(1), rows = query.size(2);
        lse = allocate(query, query.sizes().slice(0, 3), {heads * rows, rows, 1}, at::kFloat);
    }
    views[3] = view_of(out);
    PyObject* error = known.launch(known.table.get(), call.get(), views, with_lse ? uint64_t(lse.const_data_ptr()) : 0);
    if (!error) return results;
    py::gil_scoped_acquire gil;
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error)), error);
    Py_DECREF(error);
    throw py::error_already_set();
}

// The kernels of one operator, for one backend.
template <class Result>
class Operator {
    using Schema = Result(const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&, double, bool,
                          std::optional<double>, bool, std::string_view);

  public:
    Operator(const std::string& space, const std::string& name, c10::DispatchKey backend,
             std::shared_ptr<KnownCalls> known, PythonKernels python)
        : backend_(backend),
          known_(std::move(known)),
          python_(python),
          handle_(c10::Dispatcher::singleton().findSchemaOrThrow((space + "::" + name).c_str(), "").typed<Schema>()) {}

    Result autograd(c10::DispatchKeySet keys, const Tensor& query, const Tensor& key, const Tensor& value,
                    const Options& o) const {
        if (wants_derivative(query) || wants_derivative(key) || wants_derivative(value))
            return call_python<Result>(python_.autograd, query, key, value, o);
        at::AutoDispatchBelowADInplaceOrView guard;
        const c10::DispatchKeySet below = keys & c10::after_ADInplaceOrView_keyset;
        if (below.highestPriorityTypeId() == backend_) return this->backend(below, query, key, value, o);
        return handle_.redispatch(below, query, key, value, o.attn_mask, o.dropout_p, o.is_causal, o.scale,
                                  o.enable_gqa, o.causal_alignment);
    }

    Result backend(c10::DispatchKeySet, const Tensor& query, const Tensor& key, const Tensor& value,
                   const Options& o) const {
        constexpr bool with_lse = std::is_same_v<Result, Both>;
        Both results = launch(*known_, query, key, value, o, with_lse);
        if (!std::get<0>(results).defined()) return call_python<Result>(python_.backend, query, key, value, o);
        if constexpr (with_lse)
            return results;
        else
            return std::get<0>(results);
    }

    using Kernel = Result (Operator::*)(c10::DispatchKeySet, const Tensor&, const Tensor&, const Tensor&,
                                        const Options&) const;
    static auto bound(std::shared_ptr<const Operator> self, Kernel kernel) {
        return [self, kernel](c10::DispatchKeySet keys, const Tensor& query, const Tensor& key, const Tensor& value,
                              const std::optional<Tensor>& attn_mask, double dropout_p, bool is_causal,
                              std::optional<double> scale, bool enable_gqa, std::string_view causal_alignment) {
            return ((*self).*kernel)(keys, query, key, value,
                                     {attn_mask, dropout_p, is_causal, scale, enable_gqa, causal_alignment});
        };
    }

  private:
    c10::DispatchKey backend_;
    std::shared_ptr<KnownCalls> known_;
    PythonKernels python_;
    c10::TypedOperatorHandle<Schema> handle_;
};

template <class Result>
void add(const std::string& space, const std::string& name, const std::string& backend,
         std::shared_ptr<KnownCalls> known, PythonKernels python) {
    auto op =
        std::make_shared<const Operator<Result>>(space, name, c10::parseDispatchKey(backend), std::move(known), python);
    auto put = [&](const std::string& key, auto kernel) {
        auto* library = new torch::Library(torch::Library::IMPL, space, c10::parseDispatchKey(key), __FILE__, __LINE__);
        library->impl(name.c_str(), Operator<Result>::bound(op, kernel));  // the library stays: its end unregisters
    };
    put(backend, &Operator<Result>::backend);
    put("Autograd" + backend, &Operator<Result>::autograd);
}

void add_kernels(const std::string& space, const std::string& name, const std::string& backend,
                 const py::capsule& known_calls, py::object otherwise, py::object autograd) {
    auto* given = static_cast<KnownCalls*>(PyCapsule_GetPointer(known_calls.ptr(), fa4launch::kKnownCalls));
    if (!given) throw py::error_already_set();
    auto known = std::make_shared<KnownCalls>(*given);
    PythonKernels python{otherwise.release(), autograd.release()};
    if (name == "mha_with_lse")
        add<Both>(space, name, backend, std::move(known), python);
    else
        add<Tensor>(space, name, backend, std::move(known), python);
}

}  // namespace

#define FA4_TEXT_OF(x) #x
#define FA4_TEXT(x) FA4_TEXT_OF(x)

PYBIND11_MODULE(_operator, m) {
    m.attr("torch_version") = FA4_TEXT(FA4_TORCH_VERSION);
    m.def("add_kernels", &add_kernels, py::arg("library"), py::arg("name"), py::arg("backend"), py::arg("known_calls"),
          py::arg("otherwise"), py::arg("autograd"));
}
