#include "tensor_map.h"

#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "on_device.h"

namespace fa4launch {

namespace {

[[noreturn]] void wrong(const std::string& field, uint64_t got, const std::string& want) {
    throw std::invalid_argument("tensor map: " + field + " is " + std::to_string(got) + "; wanted " + want);
}

std::string entry(const char* field, unsigned index) { return std::string(field) + "[" + std::to_string(index) + "]"; }

void within(const char* field, unsigned index, uint64_t value, uint64_t most) {
    if (value < 1 || value > most) wrong(entry(field, index), value, "1 to " + std::to_string(most));
}

template <class T>
std::string list(const T* values, unsigned count) {
    std::string text = "(";
    for (unsigned i = 0; i < count; ++i) {
        if (i) text += ", ";
        text += std::to_string(values[i]);
    }
    return text + ")";
}

}  // namespace

bool TensorMapArgs::operator==(const TensorMapArgs& other) const { return !std::memcmp(this, &other, sizeof other); }

void check(const TensorMapArgs& args) {
    if (args.rank < 1 || args.rank > 5) wrong("rank", args.rank, "1 to 5");
    if (args.address % 16) wrong("address", args.address, "a 64-bit multiple of 16");
    for (unsigned i = 0; i < args.rank; ++i) {
        within("dims", i, args.dims[i], uint64_t(1) << 32);
        within("box", i, args.box[i], 256);
        within("element_strides", i, args.steps[i], 8);
    }
    for (unsigned i = 0; i + 1 < args.rank; ++i)
        if (args.strides[i] % 16 || args.strides[i] >> 40)
            wrong(entry("strides_bytes", i), args.strides[i], "a multiple of 16 below 2**40");
    unsigned inner = args.box[0] * args.element_bytes, span = args.swizzle ? 16u << args.swizzle : 0;
    if (inner % 16)
        wrong("box[0]", args.box[0], "a multiple of " + std::to_string(16 / args.element_bytes) + " (16 bytes)");
    if (span && inner > span)
        wrong("box[0]", args.box[0], "at most " + std::to_string(span / args.element_bytes) + " with this swizzle");
}

std::string describe(const TensorMapArgs& args) {
    char address[24];
    std::snprintf(address, sizeof address, "0x%llx", static_cast<unsigned long long>(args.address));
    return std::string("dtype ") + std::to_string(args.dtype) + ", address " + address + ", dims " +
           list(args.dims, args.rank) + ", strides in bytes " + list(args.strides, args.rank - 1) + ", box " +
           list(args.box, args.rank) + ", swizzle " + std::to_string(args.swizzle);
}

TensorMapBytes encode_by_driver(const TensorMapArgs& args) {
    check(args);
    const Driver& driver = Driver::get();
    CUtensorMap map;
    auto encode = [&] {
        return driver.cuTensorMapEncodeTiled(&map, args.dtype, args.rank, reinterpret_cast<void*>(args.address),
                                             args.dims, args.strides, args.box, args.steps, 0, args.swizzle,
                                             args.l2_promotion, args.oob_nan);
    };
    CUresult result = encode();
    if (result == kErrorInvalidContext) {  // the driver wants a context, though it reads nothing of the device
        int device = 0;
        driver.check(driver.cuPointerGetAttribute(&device, kPointerAttributeDeviceOrdinal, args.address),
                     "cuPointerGetAttribute(DEVICE_ORDINAL)");
        OnDevice guard(device);
        result = encode();
    }
    if (result) driver.check(result, "cuTensorMapEncodeTiled(" + describe(args) + ")");
    TensorMapBytes bytes;
    std::memcpy(bytes.data(), map.bytes, bytes.size());
    return bytes;
}

}  // namespace fa4launch
