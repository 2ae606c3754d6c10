// Python surface of the launcher. src/fa4_cute/launch.py and binding.py wrap it; nothing else imports it.
#include <nanobind/stl/array.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>

#include "fast_call.h"

namespace nb = nanobind;
using namespace fa4launch;

namespace {

PyObject* launch_error = nullptr;
PyObject* no_driver = nullptr;

Kind kind_of(const std::string& name) {
    static const std::pair<const char*, Kind> kinds[] = {{"tensor_map", Kind::tensor_map},
                                                         {"dims", Kind::dims},
                                                         {"i32", Kind::i32},
                                                         {"f32", Kind::f32},
                                                         {"address", Kind::address}};
    for (auto& [text, kind] : kinds)
        if (name == text) return kind;
    throw std::invalid_argument("parameter kind: got '" + name + "', wanted tensor_map, dims, i32, f32 or address");
}

// (name, kind, offset, size) or (tensor, "tensor_map", offset, size, box, swizzle code, NaN fill)
std::shared_ptr<Packer> make_packer(nb::list entries) {
    std::vector<Param> params;
    for (nb::handle entry : entries) {
        nb::tuple fields = nb::cast<nb::tuple>(entry);
        Param param;
        param.name = nb::cast<std::string>(fields[0]);
        param.kind = kind_of(nb::cast<std::string>(fields[1]));
        param.offset = nb::cast<uint32_t>(fields[2]);
        param.size = nb::cast<uint32_t>(fields[3]);
        if (param.kind == Kind::tensor_map) {
            auto box = nb::cast<std::array<uint32_t, 4>>(fields[4]);
            std::copy(box.begin(), box.end(), param.box);
            param.swizzle = nb::cast<uint8_t>(fields[5]);
            param.oob_nan = nb::cast<bool>(fields[6]);
        }
        params.push_back(std::move(param));
    }
    return std::make_shared<Packer>(std::move(params));
}

// KeyError names a missing one; TypeError for a number of another kind.
std::vector<Scalar> scalars_of(const Packer& packer, nb::dict values) {
    std::vector<Scalar> result(packer.scalars().size());
    for (const Param& param : packer.params()) {
        if (param.kind == Kind::tensor_map || param.kind == Kind::dims) continue;
        if (!values.contains(param.name.c_str())) throw nb::key_error(param.name.c_str());
        nb::object value = values[param.name.c_str()];
        Scalar& scalar = result[param.source];
        if (param.kind == Kind::f32) {
            scalar.real = PyFloat_AsDouble(value.ptr());
        } else if (param.kind == Kind::i32) {
            scalar.integer = PyLong_AsLongLong(value.ptr());
        } else {
            scalar.address = PyLong_AsUnsignedLongLong(value.ptr());
        }
        if (PyErr_Occurred()) {
            if (!PyErr_ExceptionMatches(PyExc_OverflowError)) throw nb::python_error();
            PyErr_Clear();
            throw std::invalid_argument(param.name + ": got " + std::string(nb::str(value).c_str()) +
                                        ", which does not fit 64 bits");
        }
    }
    return result;
}

// (address, shape, strides, dtype code, bytes an element)
Operand operand_of(nb::handle fields_handle) {
    nb::tuple fields = nb::cast<nb::tuple>(fields_handle);
    Operand operand;
    operand.address = nb::cast<uint64_t>(fields[0]);
    auto shape = nb::cast<std::array<int64_t, 4>>(fields[1]), strides = nb::cast<std::array<int64_t, 4>>(fields[2]);
    std::copy(shape.begin(), shape.end(), operand.shape);
    std::copy(strides.begin(), strides.end(), operand.strides);
    operand.dtype = nb::cast<uint8_t>(fields[3]);
    operand.element_bytes = nb::cast<uint8_t>(fields[4]);
    return operand;
}

CallOptions options_of(bool causal, nb::object scale, bool gqa, const std::string& alignment) {
    CallOptions options;
    options.causal = causal;
    options.gqa = gqa;
    options.bottom_right = alignment == "bottom_right";
    options.has_scale = !scale.is_none();
    if (options.has_scale) options.scale = nb::cast<double>(scale);
    return options;
}

// An aligned copy: the driver wants tensor maps on 64 bytes also on the host side of the call.
struct alignas(64) Block {
    uint8_t bytes[kMostParameterBytes];
};

void launch(Kernel& kernel, int device, uint64_t stream, std::array<uint32_t, 3> grid, nb::bytes block) {
    if (block.size() != kernel.shape().param_bytes)
        throw std::invalid_argument("block: got " + std::to_string(block.size()) + " bytes, the kernel takes " +
                                    std::to_string(kernel.shape().param_bytes));
    Block aligned;
    std::memcpy(aligned.bytes, block.data(), block.size());
    nb::gil_scoped_release release;
    kernel.launch(device, reinterpret_cast<CUstream>(stream), grid, aligned.bytes);
}

// output: (whether torch.empty_like(query) has its strides, its strides in elements)
bool remember(Table& table, nb::tuple tensors, nb::tuple options, std::shared_ptr<Packer> packer, nb::object target,
              std::array<uint32_t, 3> grid, nb::dict values, nb::tuple output) {
    PlannedCall call;
    call.packer = packer;
    if (nb::isinstance<Kernel>(target))
        call.kernel = nb::cast<std::shared_ptr<Kernel>>(target);
    else
        call.sink = std::shared_ptr<PyObject>(target.release().ptr(), [](PyObject* object) {
            nb::gil_scoped_acquire gil;  // threads that do not hold it drop calls too
            Py_DECREF(object);
        });
    call.grid = grid;
    std::ranges::copy(scalars_of(*packer, values), call.scalars.begin());
    call.output_like_query = nb::cast<bool>(output[0]);
    std::ranges::copy(nb::cast<std::array<int64_t, 4>>(output[1]), call.output_strides);
    const char* names[] = {"q", "k", "v", "o"};
    const auto& wanted = packer->tensors();
    if (wanted.size() != 4) throw std::invalid_argument("packer: wanted the tensors q, k, v, o");
    for (int i = 0; i < 4; ++i) {
        auto found = std::find(wanted.begin(), wanted.end(), names[i]);
        if (found == wanted.end()) throw std::invalid_argument(std::string("packer: no tensor ") + names[i]);
        call.operand_of[i] = uint32_t(found - wanted.begin());
    }
    for (const Param& param : packer->params())
        if (param.name == "lse") call.lse_offset = int32_t(param.offset);
    PyObject* inputs[] = {nb::handle(tensors[0]).ptr(), nb::handle(tensors[1]).ptr(), nb::handle(tensors[2]).ptr()};
    return table.remember(inputs,
                          options_of(nb::cast<bool>(options[0]), options[1], nb::cast<bool>(options[2]),
                                     nb::cast<std::string>(options[3])),
                          std::move(call));
}

void bind_calls(nb::module_& m) {
    nb::class_<Table>(m, "Calls")
        .def(nb::init<nb::dict, nb::object, size_t, size_t>(), nb::arg("torch"), nb::arg("encode").none(),
             nb::arg("capacity"), nb::arg("encodings"))
        .def("remember", &remember, nb::arg("tensors"), nb::arg("options"), nb::arg("packer"), nb::arg("target"),
             nb::arg("grid"), nb::arg("values"), nb::arg("output"))
        .def("clear", [](Table& self) { self.calls().clear(); })
        .def("__len__", [](Table& self) { return self.calls().size(); })
        .def_prop_ro("reads_tensors", [](Table& self) { return self.calls().exchange() != nullptr; })
        .def_prop_ro("known_calls", &Table::known_calls)
        .def_prop_ro("encodings", [](Table& self) {
            auto statistics = self.calls().encodings().statistics();
            nb::dict result;
            result["hits"] = statistics.hits;
            result["misses"] = statistics.misses;
            result["evictions"] = statistics.evictions;
            result["entries"] = statistics.entries;
            return result;
        });
    static PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(fast_op_call)}, {0, nullptr}};
    nb::class_<FastOp>(m, "FastOp", nb::type_slots(slots))
        .def(
            "__init__",
            [](FastOp* self, std::shared_ptr<Table> table, nb::object otherwise, bool with_lse, uint64_t relevant_keys,
               uint64_t plain_keys) {
                new (self) FastOp{std::move(table), std::move(otherwise), with_lse, relevant_keys, plain_keys};
            },
            nb::arg("table"), nb::arg("otherwise"), nb::arg("with_lse"), nb::arg("relevant_keys"),
            nb::arg("plain_keys"));
    static PyType_Slot direct_slots[] = {{Py_tp_call, reinterpret_cast<void*>(direct_call)}, {0, nullptr}};
    nb::class_<Direct>(m, "Direct", nb::type_slots(direct_slots))
        .def(
            "__init__",
            [](Direct* self, std::shared_ptr<Table> table, bool with_lse, nb::object included_keys,
               uint64_t harmless_keys, nb::list busy) {
                new (self) Direct{std::move(table), with_lse, std::move(included_keys), harmless_keys, std::move(busy)};
            },
            nb::arg("table"), nb::arg("with_lse"), nb::arg("included_keys"), nb::arg("harmless_keys"), nb::arg("busy"));
}

}  // namespace

void fa4launch::translate_current_exception() {
    try {
        throw;
    } catch (const NoDriver& error) {
        PyErr_SetString(no_driver, error.what());
    } catch (const LaunchError& error) {
        PyErr_SetString(launch_error, error.what());
    } catch (const std::invalid_argument& error) {
        PyErr_SetString(PyExc_ValueError, error.what());
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
}

NB_MODULE(_launch, m) {
    nb::set_leak_warnings(false);  // torch's dispatcher keeps the operators' kernels until the process ends
    launch_error = nb::exception<LaunchError>(m, "LaunchError", PyExc_RuntimeError).ptr();
    no_driver = nb::exception<NoDriver>(m, "NoDriver", launch_error).ptr();

    m.def("driver_available", [] {
        try {
            Driver::get();
            return true;
        } catch (const NoDriver&) {
            return false;
        }
    });
    nb::class_<Packer>(m, "Packer")
        .def(nb::new_(&make_packer), nb::arg("params"))
        .def_prop_ro("bytes", &Packer::bytes)
        .def_prop_ro("tensors", &Packer::tensors)
        .def(
            "pack",
            [](const Packer& self, nb::dict operands, nb::dict values, nb::object encode) {
                std::vector<Operand> list;
                for (const std::string& name : self.tensors()) {
                    if (!operands.contains(name.c_str())) throw nb::key_error(name.c_str());
                    list.push_back(operand_of(operands[name.c_str()]));
                }
                Block block;
                self.pack(block.bytes, list.data(), scalars_of(self, values).data(), encoder_of(encode));
                return nb::bytes(block.bytes, self.bytes());
            },
            nb::arg("operands"), nb::arg("values"), nb::arg("encode").none());
    nb::class_<Kernel>(m, "Kernel")
        .def(
            "__init__",
            [](Kernel* self, nb::bytes cubin, std::string name, std::array<uint32_t, 3> block,
               std::array<uint32_t, 3> cluster, uint32_t smem_bytes, bool pdl, std::vector<uint32_t> offsets,
               uint32_t param_bytes) {
                if (param_bytes > kMostParameterBytes) throw std::invalid_argument("param_bytes: more than 4096");
                new (self) Kernel(std::string(cubin.c_str(), cubin.size()),
                                  {std::move(name), block, cluster, smem_bytes, pdl, std::move(offsets), param_bytes});
            },
            nb::arg("cubin"), nb::arg("name"), nb::arg("block"), nb::arg("cluster"), nb::arg("smem_bytes"),
            nb::arg("pdl"), nb::arg("param_offsets"), nb::arg("param_bytes"))
        .def("prepare", &Kernel::prepare, nb::arg("device"))
        .def("launch", &launch, nb::arg("device"), nb::arg("stream"), nb::arg("grid"), nb::arg("block"));
    bind_calls(m);
    m.def("encode_tensor_map", [](uint64_t address, uint8_t dtype, uint8_t element_bytes, std::vector<uint64_t> dims,
                                  std::vector<uint64_t> strides, std::vector<uint32_t> box, std::vector<uint32_t> steps,
                                  uint8_t swizzle, bool oob_nan, uint8_t l2_promotion) {
        TensorMapArgs args;
        if (dims.size() < 1 || dims.size() > 5 || strides.size() + 1 != dims.size() || box.size() != dims.size() ||
            steps.size() != dims.size())
            throw std::invalid_argument(
                "tensor map: wanted 1 to 5 dims, as many box extents and steps, one stride less");
        args.address = address;
        args.rank = uint8_t(dims.size());
        args.dtype = dtype;
        args.element_bytes = element_bytes;
        args.swizzle = swizzle;
        args.oob_nan = oob_nan;
        args.l2_promotion = l2_promotion;
        std::copy(dims.begin(), dims.end(), args.dims);
        std::copy(strides.begin(), strides.end(), args.strides);
        std::copy(box.begin(), box.end(), args.box);
        std::copy(steps.begin(), steps.end(), args.steps);
        TensorMapBytes bytes = encode_by_driver(args);
        return nb::bytes(bytes.data(), bytes.size());
    });
}
