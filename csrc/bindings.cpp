// Python surface of the emulator core. src/fa4_cute/emulator wraps it; nothing else imports it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "exec/grid.h"
#include "mem/global.h"

namespace nb = nanobind;
using namespace fa4emu;

namespace fa4emu {
void bind_tensor(nb::module_& m);
void bind_recording(nb::module_& m);
}  // namespace fa4emu

NB_MODULE(_core, m) {
    static nb::object fault = nb::exception<Fault>(m, "Fault", PyExc_RuntimeError);
    nb::exception<Deadlock>(m, "Deadlock", fault.ptr());
    nb::exception<PtxError>(m, "PtxError", PyExc_ValueError);
    bind_tensor(m);
    bind_recording(m);

    nb::class_<ModuleText>(m, "ModuleText")
        .def("kernels",
             [](const ModuleText& self) {
                 std::vector<std::string> names;
                 for (const auto& [name, kernel] : self.kernels) names.push_back(name);
                 return names;
             })
        .def("params",
             [](const ModuleText& self, const std::string& kernel) {
                 std::vector<std::tuple<std::string, uint32_t, uint32_t, uint32_t>> out;
                 for (const auto& p : self.kernels.at(kernel).params)
                     out.emplace_back(p.name, p.offset, p.size, p.align);
                 return out;
             })
        .def("reqntid",
             [](const ModuleText& self, const std::string& kernel) {
                 const auto& k = self.kernels.at(kernel);
                 return std::vector<uint32_t>(k.reqntid, k.reqntid + 3);
             })
        .def_prop_ro("target", [](const ModuleText& self) { return self.target; })
        .def_prop_ro("static_shared_bytes", [](const ModuleText& self) { return self.static_shared_bytes; });
    nb::class_<Program>(m, "Program")
        .def("instructions", [](const Program& self) { return self.code.size(); })
        .def("sources", [](const Program& self) {  // (PTX line, file, its line) of each instruction that has one
            std::vector<std::tuple<int, std::string, int>> out;
            for (const Inst& inst : self.code) {
                auto file = self.module_info.files.find(inst.raw->file);
                if (file != self.module_info.files.end() && inst.raw->source_line)  // line 0: the compiler's own
                    out.emplace_back(inst.raw->line, file->second, inst.raw->source_line);
            }
            return out;
        });
    nb::class_<GlobalMemory>(m, "GlobalMemory")
        .def(nb::init<>())
        .def("map", [](GlobalMemory& self, uintptr_t data, uint64_t bytes, const std::string& name,
                       bool writable) { return self.map(reinterpret_cast<uint8_t*>(data), bytes, name, writable); })
        .def("clear", &GlobalMemory::clear);
    nb::class_<Stats>(m, "Stats")
        .def_ro("warp_instructions", &Stats::warp_instructions)
        .def_ro("mma_count", &Stats::mma)
        .def_ro("tma_loads", &Stats::tma_loads)
        .def_ro("tma_stores", &Stats::tma_stores)
        .def_ro("idle_waits", &Stats::idle_waits);

    nb::class_<Finding>(m, "Finding")
        .def_ro("kind", &Finding::kind)
        .def_ro("text", &Finding::text)
        .def_ro("line", &Finding::line)
        .def_ro("other_line", &Finding::other_line)
        .def_ro("count", &Finding::count);
    nb::class_<Report>(m, "Report")
        .def_ro("stats", &Report::stats)
        .def_ro("findings", &Report::findings)
        .def_ro("error", &Report::error)
        .def_ro("deadlock", &Report::deadlock)
        .def_ro("suspect", &Report::suspect)
        .def_ro("recording", &Report::recording);

    m.def("parse", &parse, nb::arg("ptx"));
    m.def("bind", &bind, nb::arg("module"), nb::arg("kernel"));
    m.def(
        "launch",
        [](const Program& program, GlobalMemory& memory, std::array<uint32_t, 3> grid, std::array<uint32_t, 3> block,
           std::array<uint32_t, 3> cluster, uint32_t smem_bytes, nb::bytes params, int mode, uint64_t seed, int workers,
           bool lenient_tcgen05, bool strict, bool grant_cancel, int64_t record, size_t record_limit,
           uint64_t spin_limit, uint64_t instruction_limit) {
            Launch launch{{grid[0], grid[1], grid[2]},
                          {block[0], block[1], block[2]},
                          {cluster[0], cluster[1], cluster[2]},
                          smem_bytes,
                          {},
                          {Schedule::Mode(mode), seed},
                          {lenient_tcgen05, strict, grant_cancel, spin_limit, instruction_limit},
                          nullptr,
                          {record, record_limit}};
            auto data = static_cast<const uint8_t*>(params.data());
            launch.params.assign(data, data + params.size());
            nb::gil_scoped_release release;
            return run_grid(program, launch, memory, workers);
        },
        nb::arg("program"), nb::arg("memory"), nb::arg("grid"), nb::arg("block"), nb::arg("cluster"),
        nb::arg("smem_bytes"), nb::arg("params"), nb::arg("mode"), nb::arg("seed"), nb::arg("workers"),
        nb::arg("lenient_tcgen05"), nb::arg("strict"), nb::arg("grant_cancel"), nb::arg("record"),
        nb::arg("record_limit"), nb::arg("spin_limit"), nb::arg("instruction_limit"));
}
