// Python entry points of the tensor units: the tensor map encoder, and hooks by which tests drive each unit alone.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>

#include "mma.h"
#include "tma.h"
#include "tmem.h"
#include "tmem_copy.h"

namespace nb = nanobind;

namespace fa4emu {

namespace {

using Bytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Words = nb::ndarray<uint32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// A global memory of one buffer.
class OneBuffer : public GlobalView {
  public:
    OneBuffer(uint64_t base, Bytes bytes) : base_(base), bytes_(bytes) {}
    const uint8_t* read(uint64_t address, uint64_t bytes) override { return at(address, bytes); }
    uint8_t* write(uint64_t address, uint64_t bytes) override { return at(address, bytes); }
    bool writable(uint64_t) const override { return true; }

  private:
    uint8_t* at(uint64_t address, uint64_t bytes) {
        if (address < base_ || address - base_ + bytes > bytes_.size())
            throw Fault(format("global address 0x%llx + %llu bytes is unmapped", (unsigned long long)address,
                               (unsigned long long)bytes));
        return bytes_.data() + (address - base_);
    }
    uint64_t base_;
    Bytes bytes_;
};

nb::bytes encode_tensor_map(uint64_t address, uint32_t dtype_code, uint32_t element_bytes, std::vector<uint64_t> dims,
                            std::vector<uint64_t> strides_bytes, std::vector<uint32_t> box,
                            std::vector<uint32_t> element_strides, uint32_t swizzle_code, bool oob_nan) {
    TensorMap map;
    size_t rank = dims.size();
    if (rank < 1 || rank > 5) throw Fault(format("tensor map: rank %zu; wanted 1 to 5", rank));
    if (strides_bytes.size() != rank - 1 || box.size() != rank || element_strides.size() != rank)
        throw Fault("tensor map: strides_bytes, box and element_strides must have rank - 1, rank and rank entries");
    map.address = address, map.dtype = dtype_code, map.element_bytes = element_bytes, map.rank = uint32_t(rank);
    map.swizzle = swizzle_code, map.oob_nan = oob_nan;
    map.strides_bytes[0] = element_bytes;
    for (size_t i = 0; i < rank; ++i) {
        map.dims[i] = dims[i], map.box[i] = box[i], map.element_strides[i] = element_strides[i];
        if (i) map.strides_bytes[i] = strides_bytes[i - 1];
    }
    auto record = encode(map);
    return nb::bytes(reinterpret_cast<const char*>(record.data()), record.size());
}

void tma(bool store, nb::bytes record, std::vector<int32_t> coords, uint64_t base, Bytes global, Bytes shared,
         uint32_t address) {
    if (record.size() != 128) throw Fault("a tensor map record has 128 bytes");
    TensorMap map = decode(reinterpret_cast<const uint8_t*>(record.c_str()));
    if (coords.size() != map.rank) throw Fault(format("%zu coordinates for rank %u", coords.size(), map.rank));
    OneBuffer view(base, global);
    SharedView window(shared.data(), uint32_t(shared.size()));
    if (store)
        tma_store(map, coords.data(), view, window, address);
    else
        tma_load(map, coords.data(), view, window, address);
}

TmemShape shape_of(const std::string& name) {
    static const std::map<std::string, TmemShape> shapes = {{"32x32b", TmemShape::x32x32b},
                                                            {"16x64b", TmemShape::x16x64b},
                                                            {"16x128b", TmemShape::x16x128b},
                                                            {"16x256b", TmemShape::x16x256b},
                                                            {"16x32bx2", TmemShape::x16x32bx2}};
    auto found = shapes.find(name);
    if (found == shapes.end()) throw Fault("unknown TMEM shape " + name);
    return found->second;
}

void check_regs(const Words& regs, int count) {
    if (int(regs.shape(0)) != count || regs.shape(1) != 32) throw Fault(format("regs must have shape (%d, 32)", count));
}

void run_mma(std::vector<Tmem*> tmem, std::vector<Bytes> shared, uint32_t d, uint64_t a, uint64_t b, uint32_t idesc,
             bool a_in_tmem, bool accumulate, int scale_input_d, const std::string& kind,
             std::vector<uint32_t> disabled) {
    if (tmem.empty() || tmem.size() > 2 || shared.size() != tmem.size()) throw Fault("mma: one or two CTAs are needed");
    static const std::map<std::string, MmaKind> kinds = {
        {"f16", MmaKind::f16}, {"tf32", MmaKind::tf32}, {"f8f6f4", MmaKind::f8f6f4}, {"i8", MmaKind::i8}};
    MmaArgs args;
    args.kind = kinds.at(kind);
    if (disabled.size() > 8) throw Fault("mma: at most 8 words of disabled lanes");
    std::copy(disabled.begin(), disabled.end(), args.disabled);
    std::vector<SharedView> views;
    for (Bytes& bytes : shared) views.emplace_back(bytes.data(), uint32_t(bytes.size()));
    for (size_t i = 0; i < tmem.size(); ++i) args.cta[i] = {&views[i], tmem[i]};
    args.cta_group = int(tmem.size());
    args.d = d, args.a = a, args.b = b, args.idesc = idesc;
    args.a_in_tmem = a_in_tmem, args.accumulate = accumulate, args.scale_input_d = scale_input_d;
    mma(args);
}

void run_tmem_copy(Tmem& tmem, Bytes shared, const std::string& shape, uint32_t address, uint64_t descriptor,
                   int source_bits) {
    static const std::map<std::string, CopyShape> shapes = {
        {"128x256b", CopyShape::x128x256b},           {"4x256b", CopyShape::x4x256b},
        {"128x128b", CopyShape::x128x128b},           {"64x128b.02_13", CopyShape::x64x128b_02_13},
        {"64x128b.01_23", CopyShape::x64x128b_01_23}, {"32x128b", CopyShape::x32x128b}};
    tmem_copy({shapes.at(shape), source_bits, address, descriptor}, SharedView(shared.data(), uint32_t(shared.size())),
              tmem);
}

}  // namespace

void bind_tensor(nb::module_& m) {
    using namespace nb::literals;
    m.def("encode_tensor_map", &encode_tensor_map, "address"_a, "dtype_code"_a, "element_bytes"_a, "dims"_a,
          "strides_bytes"_a, "box"_a, "element_strides"_a, "swizzle_code"_a, "oob_nan"_a);
    m.def("_tma", &tma, "store"_a, "record"_a, "coords"_a, "base"_a, "global_bytes"_a, "shared_bytes"_a, "address"_a);
    m.def("_mma", &run_mma, "tmem"_a, "shared"_a, "d"_a, "a"_a, "b"_a, "idesc"_a, "a_in_tmem"_a = false,
          "accumulate"_a = false, "scale_input_d"_a = 0, "kind"_a = "f16", "disabled"_a = std::vector<uint32_t>());
    m.def("_tmem_copy", &run_tmem_copy, "tmem"_a, "shared"_a, "shape"_a, "address"_a, "descriptor"_a,
          "source_bits"_a = 8);
    nb::class_<Tmem>(m, "_Tmem")
        .def(nb::init<>())
        .def("alloc", &Tmem::alloc)
        .def("dealloc", &Tmem::dealloc)
        .def("relinquish", &Tmem::relinquish)
        .def("allocated_columns", &Tmem::allocated_columns)
        .def(
            "load",
            [](Tmem& t, const std::string& shape, int num, int warp, uint32_t address, Words regs, bool pack,
               int split) {
                TmemShape s = shape_of(shape);
                check_regs(regs, Tmem::registers(s, num, pack));
                t.load(s, num, pack, warp, address, regs.data(), split);
            },
            "shape"_a, "num"_a, "warp"_a, "address"_a, "regs"_a, "pack"_a = false, "split"_a = 0)
        .def(
            "store",
            [](Tmem& t, const std::string& shape, int num, int warp, uint32_t address, Words regs, bool pack,
               int split) {
                TmemShape s = shape_of(shape);
                check_regs(regs, Tmem::registers(s, num, pack));
                t.store(s, num, pack, warp, address, regs.data(), split);
            },
            "shape"_a, "num"_a, "warp"_a, "address"_a, "regs"_a, "pack"_a = false, "split"_a = 0)
        .def("get", [](Tmem& t, int lane, uint32_t column) { return *t.row(lane, column, 1); })
        .def("set", [](Tmem& t, int lane, uint32_t column, uint32_t word) { *t.row(lane, column, 1) = word; });
}

}  // namespace fa4emu
