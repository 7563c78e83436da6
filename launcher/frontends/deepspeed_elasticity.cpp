#include "launcher/frontends/deepspeed_elasticity.h"

#include "base/strings.h"
#include "launcher/plan/options.h"

#include <fmt/format.h>
#include <algorithm>
#include <boost/json.hpp>
#include <numeric>
#include <optional>
#include <set>

namespace dtrun::frontends {
namespace {

using std::string_view;

/// Highly composite numbers: as many divisors as possible means as many numbers of ranks.
constexpr std::int64_t kComposite[] = {
    1,      2,      4,      6,      12,     24,     36,     48,    60,    120,
    180,    240,    360,    720,    840,    1260,   1680,   2520,  5040,  7560,
    10080,  15120,  20160,  25200,  27720,  45360,  50400,  55440, 83160, 110880,
    166320, 221760, 277200, 332640, 498960, 554400, 665280, 720720};
constexpr std::int64_t kBatchMax = 100'000'000;
constexpr double kVersionMax = 0.2;

/// The "elasticity" block, with DeepSpeed's defaults.
struct Elasticity {
    std::vector<std::int64_t> micro_batches{2, 4, 6};
    std::int64_t batch_max = 2'000;
    std::int64_t gpus_min = 1, gpus_max = 10'000;
    std::int64_t model_parallel = 1, gpus_per_node = 1;
    bool prefer_larger = true;
    double version = 0.2;
};

Result<void> read_number(const boost::json::object& block, const char* key, std::int64_t& number) {
    const boost::json::value* const found = block.if_contains(key);
    if (found == nullptr) return {};
    boost::system::error_code error;
    const auto value = found->to_number<std::int64_t>(error);
    if (error || value < 1 || value > kBatchMax)
        return fail(Errc::invalid_input, "elasticity: {}: {} is not a number from 1 to {}", key,
                    boost::json::serialize(*found), kBatchMax);
    number = value;
    return {};
}

Result<void> read_micro_batches(const boost::json::object& block, Elasticity& elasticity) {
    const boost::json::value* const found = block.if_contains("micro_batch_sizes");
    if (found == nullptr) return {};
    const boost::json::array* const list = found->if_array();
    std::vector<std::int64_t> sizes;
    for (const boost::json::value& item : list ? *list : boost::json::array{}) {
        boost::system::error_code error;
        const auto size = item.to_number<std::int64_t>(error);
        if (error || size < 1 || size > kBatchMax)
            return fail(Errc::invalid_input,
                        "elasticity: micro_batch_sizes: {} is not a list of positive numbers",
                        boost::json::serialize(*found));
        sizes.push_back(size);
    }
    if (sizes.empty())
        return fail(Errc::invalid_input,
                    "elasticity: micro_batch_sizes: {} is not a list of positive numbers",
                    boost::json::serialize(*found));
    elasticity.micro_batches = std::move(sizes);
    return {};
}

Result<Elasticity> read_block(const boost::json::object& block) {
    Elasticity read;
    if (const auto done = read_micro_batches(block, read); !done)
        return std::unexpected(done.error());
    const std::pair<const char*, std::int64_t*> numbers[] = {
        {"max_train_batch_size", &read.batch_max},
        {"min_gpus", &read.gpus_min},
        {"max_gpus", &read.gpus_max},
        {"model_parallel_size", &read.model_parallel},
        {"num_gpus_per_node", &read.gpus_per_node}};
    for (const auto& [key, number] : numbers)
        if (const auto done = read_number(block, key, *number); !done)
            return std::unexpected(done.error());
    if (const auto* larger = block.if_contains("prefer_larger_batch"))
        read.prefer_larger = larger->is_bool() && larger->get_bool();
    if (const auto* version = block.if_contains("version")) {
        boost::system::error_code error;
        read.version = version->to_number<double>(error);
        if (error || read.version > kVersionMax)
            return fail(Errc::invalid_input,
                        "elasticity: version {} is not known; dtrun knows 0.1 and 0.2",
                        boost::json::serialize(*version));
    }
    if (read.gpus_per_node % read.model_parallel != 0)
        return fail(Errc::invalid_input,
                    "elasticity: num_gpus_per_node {} is no multiple of model_parallel_size {}",
                    read.gpus_per_node, read.model_parallel);
    return read;
}

/// Batches that may have many divisors: each micro batch, and their least common multiple, times the largest
/// composite number that fits.
std::set<std::int64_t> candidates(const std::vector<std::int64_t>& micro_batches,
                                  std::int64_t batch_max) {
    std::vector<std::int64_t> bases = micro_batches;
    std::int64_t common = 1;
    for (const std::int64_t size : micro_batches)
        common = std::min(std::lcm(common, size), kBatchMax);
    bases.push_back(common);
    std::set<std::int64_t> batches;
    for (const std::int64_t base : bases) {
        std::int64_t factor = 1;
        for (const std::int64_t composite : kComposite)
            if (composite * base <= batch_max) factor = composite;
        batches.insert(factor * base);
    }
    return batches;
}

std::set<std::int64_t> sizes_of(std::int64_t batch, const Elasticity& asked, std::int64_t least,
                                std::int64_t most) {
    std::set<std::int64_t> sizes;
    for (const std::int64_t micro : asked.micro_batches) {
        if (batch % micro != 0) continue;
        const std::int64_t ranks = batch / micro;
        for (std::int64_t n = least; n <= std::min(ranks, most); ++n)
            if (ranks % n == 0) sizes.insert(n);
    }
    return sizes;
}

/// The sizes of the batch that has most of them.
std::set<std::int64_t> best_sizes(const Elasticity& asked, std::int64_t batch_max,
                                  std::int64_t least, std::int64_t most) {
    std::set<std::int64_t> best;
    std::int64_t best_batch = std::ranges::min(asked.micro_batches);
    for (const std::int64_t batch : candidates(asked.micro_batches, batch_max)) {
        auto sizes = sizes_of(batch, asked, least, most);
        const bool is_better = asked.prefer_larger ? batch > best_batch : batch < best_batch;
        if (sizes.size() < best.size() || (sizes.size() == best.size() && !is_better)) continue;
        best = std::move(sizes);
        best_batch = batch;
    }
    return best;
}

}  // namespace

std::string config_of(cli::Words script) {
    constexpr string_view kNames[] = {"--deepspeed_config", "--deepspeed-config"};
    for (std::size_t i = 0; i < script.size(); ++i)
        for (const string_view name : kNames) {
            if (script[i] == name && i + 1 < script.size()) return script[i + 1];
            if (script[i].starts_with(name) && script[i].substr(name.size()).starts_with('='))
                return script[i].substr(name.size() + 1);
        }
    return {};
}

Result<std::vector<int>> elastic_sizes(string_view json) {
    boost::system::error_code error;
    const boost::json::value config =
        boost::json::parse(boost::json::string_view(json.data(), json.size()), error);
    if (error || !config.is_object())
        return fail(Errc::invalid_input, "it is no JSON object, so no configuration of DeepSpeed");
    const boost::json::value* const block = config.get_object().if_contains("elasticity");
    if (block == nullptr || !block->is_object()) return std::vector<int>{};
    const boost::json::value* const enabled = block->get_object().if_contains("enabled");
    if (enabled == nullptr || !enabled->is_bool() || !enabled->get_bool())
        return std::vector<int>{};
    const auto asked = read_block(block->get_object());
    if (!asked) return std::unexpected(asked.error());
    // Version 0.2 counts nodes, each with so many replicas of the model.
    const std::int64_t per_node = asked->version < 0.15 ? 1 : asked->gpus_per_node;
    const std::int64_t replicas = asked->version < 0.15 ? 1 : per_node / asked->model_parallel;
    const auto sizes = best_sizes(*asked, asked->batch_max / replicas,
                                  std::max<std::int64_t>(asked->gpus_min / per_node, 1),
                                  asked->gpus_max / per_node);
    if (sizes.empty())
        return fail(Errc::invalid_input,
                    "elasticity: no number of GPUs from {} to {} fits its batches", asked->gpus_min,
                    asked->gpus_max);
    std::vector<int> ranks;
    for (const std::int64_t size : sizes)
        if (size * per_node <= kRanksMax) ranks.push_back(static_cast<int>(size * per_node));
    return ranks;
}

}  // namespace dtrun::frontends
