#include "worker/stores/torch_question.h"

namespace dtrun::stores {

StoreRequest& TorchQuestion::begin(Op op) {
    request_.op = op;
    request_.keys.clear();
    request_.values.clear();
    request_.expected.reset();
    request_.timeout_ms = 0;
    return request_;
}

StoreRequest& TorchQuestion::begin(Op op, std::string_view prefix, std::string_view key) {
    begin(op);
    keys_.assign(prefix);
    keys_ += key;
    request_.keys.push_back(keys_);
    return request_;
}

StoreRequest& TorchQuestion::begin_with_keys(Op op, const TcpStoreInput& input) {
    begin(op);
    take_keys(input, 1);
    return request_;
}

StoreRequest& TorchQuestion::begin_with_pairs(Op op, const TcpStoreInput& input) {
    begin(op);
    take_keys(input, 2);
    return request_;
}

void TorchQuestion::take_keys(const TcpStoreInput& input, std::size_t stride) {
    const auto& fields = input.request().fields;
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < fields.size(); i += stride) bytes += kKeys.size() + fields[i].bytes;
    keys_.clear();
    keys_.reserve(bytes);  // so that the views stay valid
    for (std::size_t i = 0; i < fields.size(); i += stride) {
        const std::size_t at = keys_.size();
        keys_ += kKeys;
        keys_ += input.field(i);
        request_.keys.push_back(std::string_view(keys_).substr(at));
        if (stride == 2) request_.values.push_back(input.field(i + 1));
    }
}

}  // namespace dtrun::stores
