#include "contracts/task_gpus.h"

#include "base/strings.h"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace dtrun::contracts {
namespace {

using std::string_view;

constexpr int kGpusMax = 1024;
constexpr string_view kLists[] = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                  "HIP_VISIBLE_DEVICES",  "GPU_DEVICE_ORDINAL",
                                  "ZE_AFFINITY_MASK",     "SLURM_STEP_GPUS"};

string_view value_of(const Environment& given, string_view name) {
    const auto found = given.find(name);
    return found == given.end() ? string_view() : trim(found->second);
}

/// The number at the end of "2", "a100:2" or "gres/gpu=2"; 0: there is none.
std::size_t count_in(string_view text) {
    const std::size_t at = text.find_last_of(":=");
    const string_view number = at == string_view::npos ? text : text.substr(at + 1);
    return static_cast<std::size_t>(to_int(number, 1, kGpusMax).value_or(0));
}

/// --gpu-bind: "single:1", "per_task:2", "map_gpu:1,0", "mask_gpu:0x3,0xc", "closest", "none".
string_view asked_binding(const Environment& given) {
    string_view text = value_of(given, "SLURM_GPU_BIND");
    if (text.empty()) {
        text = value_of(given, "SLURM_TRES_BIND");  // "gres/gpu:single:1"
        const std::size_t gpu = text.find("gpu:");
        text = gpu == string_view::npos ? string_view() : text.substr(gpu + 4);
    }
    for (const string_view word : {"verbose,", "quiet,", "v,", "q,"})
        if (text.starts_with(word)) text.remove_prefix(word.size());
    return text;
}

/// How many GPUs each task has; 0: not said.
std::size_t asked_per_task(const Environment& given) {
    if (const string_view gpus = value_of(given, "SLURM_GPUS_PER_TASK"); !gpus.empty())
        return count_in(gpus);
    for (const string_view part : split(value_of(given, "SLURM_TRES_PER_TASK"), ','))
        if (part.find("gpu") != string_view::npos) return count_in(part);
    return 0;
}

using Devices = std::vector<std::size_t>;

/// `each` devices, beginning behind those of the tasks before; from the first again where there are too few.
Devices next_devices(std::size_t first, std::size_t each, std::size_t count) {
    Devices chosen;
    for (std::size_t i = 0; i < std::min(each, count); ++i) chosen.push_back((first + i) % count);
    return chosen;
}

/// The devices of a list's item for this task.
Devices listed_devices(string_view list, bool is_mask, std::size_t task, std::size_t count) {
    const auto items = split(list, ',');
    string_view item = trim(items[task % items.size()]);
    item = item.substr(0, item.find('*'));
    if (is_mask && item.starts_with("0x")) item.remove_prefix(2);
    unsigned long long number = 0;
    const auto read =
        std::from_chars(item.data(), item.data() + item.size(), number, is_mask ? 16 : 10);
    if (read.ec != std::errc() || read.ptr != item.data() + item.size()) return {};
    Devices chosen;
    for (std::size_t device = 0; device < count; ++device)
        if (is_mask ? device < 64 && (number >> device & 1) != 0 : device == number)
            chosen.push_back(device);
    return chosen;
}

/// Which of `count` devices the task sees; empty: all.
Devices chosen_devices(const Environment& given, std::size_t task, std::size_t count) {
    const string_view binding = asked_binding(given);
    const string_view kind = binding.substr(0, binding.find(':'));
    const string_view rest = binding.substr(std::min(kind.size() + 1, binding.size()));
    if (kind == "single")
        return next_devices(task / std::max<std::size_t>(count_in(rest), 1), 1, count);
    if (kind == "map_gpu" || kind == "mask_gpu")
        return listed_devices(rest, kind == "mask_gpu", task, count);
    std::size_t each = kind == "per_task" ? count_in(rest) : 0;
    if (kind.empty()) each = asked_per_task(given);
    if (each > 0) return next_devices(task * each, each, count);
    const std::size_t sharing = count_in(value_of(given, "SLURM_NTASKS_PER_GPU"));
    if (kind.empty() && sharing > 0) return next_devices(task / sharing, 1, count);
    return {};
}

}  // namespace

Variables devices_of_task(const Environment& given, std::size_t task) {
    Variables lists;
    for (const string_view name : kLists) {
        const auto devices = split(value_of(given, name), ',');
        if (devices.size() < 2) continue;
        std::string list;
        for (const std::size_t device : chosen_devices(given, task, devices.size()))
            list += (list.empty() ? "" : ",") + std::string(trim(devices[device]));
        if (!list.empty()) lists.emplace_back(name, list);
    }
    return lists;
}

}  // namespace dtrun::contracts
