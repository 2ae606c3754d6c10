#include "packer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

namespace fa4launch {

namespace {

constexpr uint64_t kStrideLimit = uint64_t(1) << 40;  // bytes
constexpr uint8_t kL2Promotion256B = 3;

uint32_t size_of(Kind kind) {
    switch (kind) {
        case Kind::tensor_map:
            return 128;
        case Kind::dims:
            return 12;
        case Kind::address:
            return 8;
        default:
            return 4;
    }
}

uint32_t index_of(std::vector<std::string>& names, const std::string& name) {
    auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) found = names.insert(names.end(), name);
    return uint32_t(found - names.begin());
}

int32_t narrow(const std::string& what, int64_t value) {
    if (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max())
        throw std::invalid_argument(what + ": got " + std::to_string(value) +
                                    ", wanted a 32-bit integer (the kernel counts rows in 32 bits)");
    return int32_t(value);
}

// In bytes. The bound is checked on elements first: the product could overflow.
uint64_t stride_bytes(const std::string& what, int64_t stride, uint64_t element_bytes) {
    if (stride < 0 || uint64_t(stride) >= kStrideLimit / element_bytes)
        throw std::invalid_argument(what + ": stride of " + std::to_string(stride) +
                                    " elements; wanted 0 or more, and less than 2**40 bytes");
    return uint64_t(stride) * element_bytes;
}

}  // namespace

Packer::Packer(std::vector<Param> params) : params_(std::move(params)) {
    uint64_t end = 0;  // of an offset near 2**32, in 32 bits, it would wrap around
    for (Param& param : params_) {
        if (param.size != size_of(param.kind))
            throw std::invalid_argument("parameter " + param.name + ": the kernel expects " +
                                        std::to_string(param.size) + " bytes, its kind has " +
                                        std::to_string(size_of(param.kind)));
        bool tensor = param.kind == Kind::tensor_map || param.kind == Kind::dims;
        // A tensor map's name is the parameter's; `tensors_` has the operand's, which the caller put into `name`.
        param.source = index_of(tensor ? tensors_ : scalars_, param.name);
        end = std::max(end, uint64_t(param.offset) + param.size);
    }
    if (scalars_.size() > kMostScalars)
        throw std::invalid_argument("parameters: " + std::to_string(scalars_.size()) + " scalars, wanted at most " +
                                    std::to_string(kMostScalars));
    if (end > kMostParameterBytes)
        throw std::invalid_argument("parameters: " + std::to_string(end) + " bytes, a launch passes at most " +
                                    std::to_string(kMostParameterBytes));
    bytes_ = uint32_t(end);
}

TensorMapArgs tensor_map_args(const Param& param, const Operand& operand) {
    TensorMapArgs args;
    args.address = operand.address;
    args.rank = 4;
    args.dtype = operand.dtype;
    args.element_bytes = operand.element_bytes;
    args.swizzle = param.swizzle;
    args.l2_promotion = kL2Promotion256B;
    args.oob_nan = param.oob_nan;
    for (int i = 0; i < 4; ++i) {
        if (operand.shape[3 - i] < 0) throw std::invalid_argument(param.name + ": negative size");
        args.dims[i] = uint64_t(operand.shape[3 - i]);
        args.box[i] = param.box[i];
        args.steps[i] = 1;
    }
    const uint64_t row = args.dims[0] * operand.element_bytes;
    unsigned __int128 packed = row;
    for (int i = 0; i < 3; ++i) {
        if (args.dims[i + 1] > 1)
            args.strides[i] = stride_bytes(param.name, operand.strides[2 - i], operand.element_bytes);
        else
            args.strides[i] = packed < kStrideLimit ? uint64_t(packed) : row;
        packed = std::max(packed, static_cast<unsigned __int128>(args.strides[i]) * args.dims[i + 1]);
    }
    return args;
}

std::vector<BlockMap> Packer::fill(uint8_t* block, const Operand* operands, const Scalar* scalars) const {
    std::vector<BlockMap> maps;
    std::memset(block, 0, bytes_);
    for (const Param& param : params_) {
        uint8_t* to = block + param.offset;
        auto put = [to](auto value) { std::memcpy(to, &value, sizeof value); };
        switch (param.kind) {
            case Kind::tensor_map:
                maps.push_back({param.offset, param.source, tensor_map_args(param, operands[param.source])});
                check(maps.back().args);
                break;
            case Kind::dims: {
                const int64_t* shape = operands[param.source].shape;
                int32_t values[3];
                for (int i = 0; i < 3; ++i) values[i] = narrow(param.name, shape[2 - i]);
                std::memcpy(to, values, sizeof values);
                break;
            }
            case Kind::i32:
                put(narrow(param.name, scalars[param.source].integer));
                break;
            case Kind::f32:
                put(float(scalars[param.source].real));
                break;
            case Kind::address:
                put(scalars[param.source].address);
                break;
        }
    }
    return maps;
}

void Packer::pack(uint8_t* block, const Operand* operands, const Scalar* scalars, const Encoder& encode) const {
    for (const BlockMap& map : fill(block, operands, scalars)) {
        TensorMapBytes bytes = encode(map.args);
        std::memcpy(block + map.offset, bytes.data(), bytes.size());
    }
}

}  // namespace fa4launch
