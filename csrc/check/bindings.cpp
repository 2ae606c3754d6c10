// Recordings as plain Python data.
#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "recorder.h"

namespace nb = nanobind;

namespace fa4emu {

namespace {

template <class T, class F>
nb::list listed(const std::deque<T>& entries, F&& fields) {
    nb::list out;
    for (const T& entry : entries) out.append(fields(entry));
    return out;
}

}  // namespace

void bind_recording(nb::module_& m) {
    nb::class_<Recording>(m, "Recording")
        .def_ro("cluster", &Recording::cluster)
        .def_ro("first_cta", &Recording::first_cta)
        .def_ro("instructions", &Recording::instructions)
        .def_ro("dropped", &Recording::dropped)
        .def_prop_ro("runs",
                     [](const Recording& self) {
                         return listed(self.runs, [](const Recording::Run& r) {
                             return nb::make_tuple(r.who.cta, r.who.warp, r.what, r.from, r.to, r.first_line,
                                                   r.last_line);
                         });
                     })
        .def_prop_ro("waits",
                     [](const Recording& self) {
                         return listed(self.waits, [](const Recording::Wait& w) {
                             return nb::make_tuple(w.who.cta, w.who.warp, w.from, w.to, w.open, w.line, w.reason);
                         });
                     })
        .def_prop_ro("operations",
                     [](const Recording& self) {
                         return listed(self.operations, [](const Recording::Operation& o) {
                             return nb::make_tuple(o.who.cta, o.who.warp, o.kind, o.from, o.to, o.open, o.line);
                         });
                     })
        .def_prop_ro("phases",
                     [](const Recording& self) {
                         return listed(self.phases, [](const Recording::Phase& p) {
                             return nb::make_tuple(p.cta, p.named, p.where, p.at, p.pending, p.expected, p.tx,
                                                   p.completed);
                         });
                     })
        .def_prop_ro("holdings",
                     [](const Recording& self) {
                         return listed(self.holdings, [](const Recording::Holding& h) {
                             return nb::make_tuple(h.cta, h.tmem, h.cell, h.at, h.kind, h.who.cta, h.who.warp, h.line);
                         });
                     })
        .def_prop_ro("sightings", [](const Recording& self) {
            return listed(self.sightings, [](const Recording::Sighting& s) {
                nb::object other = nb::none();
                if (s.other_seen) other = nb::make_tuple(s.other_who.cta, s.other_who.warp, s.other_at);
                return nb::make_tuple(s.kind, s.line, s.other_line, nb::make_tuple(s.who.cta, s.who.warp, s.at), other);
            });
        });
    m.attr("SHARED_CELL_BYTES") = kRecordedSharedCell;
    m.attr("TMEM_CELL_COLUMNS") = kRecordedTmemCell;
}

}  // namespace fa4emu
