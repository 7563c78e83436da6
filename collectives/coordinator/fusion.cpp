#include "collectives/coordinator/fusion.h"

#include <map>
#include <tuple>

namespace dtrun::collectives {
namespace {

using Key = std::tuple<DType, Reduce, int, bool>;

Key key_of(const Request& request, std::size_t tensor) {
    return {request.tensors[tensor].type, request.reduce, request.format, request.stochastic};
}

}  // namespace

std::vector<Batch> plan_batches(std::span<const Response> responses, std::size_t bytes_max) {
    struct Filling {
        std::size_t batch;
        std::size_t bytes;
    };
    std::vector<Batch> batches;
    std::map<Key, Filling> filling;
    for (std::size_t i = 0; i < responses.size(); ++i) {
        const Request& request = *responses[i].request;
        if (!responses[i].failure.empty() || request.operation != RequestKind::allreduce) {
            batches.push_back({{}, i});
            continue;
        }
        for (std::size_t t = 0; t < request.tensors.size(); ++t) {
            const TensorSpec& tensor = request.tensors[t];
            const std::size_t bytes = tensor.elements() * bytes_of(tensor.type);
            const auto [at, is_new] = filling.try_emplace(key_of(request, t));
            if (is_new || at->second.bytes + bytes > bytes_max) {
                at->second = {batches.size(), 0};
                batches.emplace_back();
            }
            at->second.bytes += bytes;
            batches[at->second.batch].parts.push_back({i, t});
        }
        if (request.tensors.empty()) batches.push_back({{}, i});
    }
    return batches;
}

}  // namespace dtrun::collectives
