#include "calls.h"

#include <algorithm>
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

// False: the hot path does not take such tensors.
bool key_of(const DlTensor* tensors, const CallOptions& options, CallKey& key) {
    int64_t* word = key.words;
    for (int i = 0; i < 3; ++i) {
        const DlTensor& tensor = tensors[i];
        if (tensor.ndim != 4 || !tensor_map_type(tensor) || tensor.address() % 16 || !tensor.address()) return false;
        *word++ = int64_t(tensor.code) | int64_t(tensor.device_type) << 8 | int64_t(tensor.device_id) << 32;
        std::copy_n(tensor.shape, 4, word);
        std::copy_n(tensor.strides, 4, word + 4);
        word += 8;
    }
    *word++ = options.causal | options.has_scale << 1 | options.gqa << 2 | options.bottom_right << 3;
    *word++ = std::bit_cast<int64_t>(options.scale);
    return true;
}

}  // namespace

Encoder encoder_of(nb::object encode) {
    if (encode.is_none()) return encode_by_driver;
    return [encode](const TensorMapArgs& args) {
        nb::gil_scoped_acquire gil;
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

Calls::Calls(const DlExchange* exchange, nb::object encoder, size_t capacity, size_t encodings)
    : exchange_(exchange), encodings_(encoder_of(encoder), encodings), known_(capacity) {}

void PlannedCall::prepare(const DlTensor* tensors) {
    DlTensor out = tensors[0];
    out.strides = output_strides;
    Operand operands[4];
    for (int i = 0; i < 4; ++i) operands[operand_of[i]] = operand_in(i < 3 ? tensors[i] : out);
    block.resize(packer->bytes());
    maps = packer->fill(block.data(), operands, scalars.data());
    for (BlockMap& map : maps) map.source = uint32_t(std::ranges::find(operand_of, map.source) - operand_of);
}

bool Calls::remember(const DlTensor* tensors, const CallOptions& options, PlannedCall call) {
    CallKey key;
    if (!key_of(tensors, options, key)) return false;
    call.prepare(tensors);
    auto known = std::make_shared<const PlannedCall>(std::move(call));
    std::lock_guard lock(mutex_);
    known_.put(key, std::move(known));
    return true;
}

std::shared_ptr<const PlannedCall> Calls::find(const DlTensor* tensors, const CallOptions& options) {
    CallKey key;
    if (!key_of(tensors, options, key)) return nullptr;
    std::lock_guard lock(mutex_);
    auto found = known_.get(key);
    return found ? *found : nullptr;
}

void Calls::launch(const PlannedCall& call, const DlTensor* tensors, uint64_t lse) {
    alignas(64) uint8_t block[kMostParameterBytes];
    std::ranges::copy(call.block, block);
    if (call.lse_offset >= 0) std::memcpy(block + call.lse_offset, &lse, sizeof lse);
    for (const BlockMap& map : call.maps) {
        TensorMapArgs args = map.args;
        args.address = tensors[map.source].address();
        TensorMapBytes bytes = encodings_(args);
        std::memcpy(block + map.offset, bytes.data(), bytes.size());
    }
    if (call.kernel) {
        void* stream = nullptr;
        if (exchange_->current_stream(tensors[0].device_type, tensors[0].device_id, &stream)) {
            nb::gil_scoped_acquire gil;
            throw nb::python_error();
        }
        call.kernel->launch(tensors[0].device_id, static_cast<CUstream>(stream), call.grid, block);
    } else {
        nb::gil_scoped_acquire gil;
        nb::handle(call.sink.get())(nb::bytes(block, call.block.size()),
                                    nb::make_tuple(call.grid[0], call.grid[1], call.grid[2]));
    }
}

size_t Calls::size() {
    std::lock_guard lock(mutex_);
    return known_.size();
}

void Calls::clear() {
    std::lock_guard lock(mutex_);
    known_.clear();
    encodings_.clear();
}

}  // namespace fa4launch
