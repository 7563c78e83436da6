#include "worker/binding/gpu_numbers.h"

#include "base/fd.h"
#include "base/strings.h"

#include <fmt/format.h>
#include <algorithm>

namespace dtrun::binding {
namespace {

using std::string_view;

std::optional<std::vector<std::size_t>> numbers_in(string_view text) {
    std::vector<std::size_t> numbers;
    for (const string_view item : split(text, ',')) {
        const auto number = to_int(trim(item), 0, kCpusMax);
        if (!number) return std::nullopt;
        numbers.push_back(static_cast<std::size_t>(*number));
    }
    return numbers;
}

/// The numbers that a step's devices have on the machine.
std::vector<std::size_t> of_machine(std::vector<std::size_t> numbers, const Variable& variable) {
    const auto step = numbers_in(variable("SLURM_STEP_GPUS").value_or("-"));
    if (!step) return numbers;
    const auto is_of_step = [&step](std::size_t number) {
        return std::ranges::find(*step, number) != step->end();
    };
    if (std::ranges::all_of(numbers, is_of_step)) return numbers;
    for (std::size_t& number : numbers)
        if (number < step->size()) number = (*step)[number];
    return numbers;
}

/// As CUDA reads it: a UUID may be cut short.
std::vector<std::size_t> by_uuid(const Machine& machine, string_view text,
                                 const std::function<std::string(const std::string&)>& uuid_of) {
    std::vector<std::size_t> found;
    for (const string_view item : split(text, ','))
        for (std::size_t gpu = 0; gpu < machine.gpus.size(); ++gpu)
            if (!trim(item).empty() && uuid_of(machine.gpus[gpu].name).starts_with(trim(item)))
                found.push_back(gpu);
    return found;
}

}  // namespace

std::vector<std::size_t> visible_gpus(
    const Machine& machine, const Variable& variable,
    const std::function<std::string(const std::string&)>& uuid_of) {
    for (const char* const name :
         {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}) {
        const auto value = variable(name);
        if (!value || trim(*value).empty()) continue;
        auto numbers = numbers_in(*value);
        if (!numbers) return by_uuid(machine, *value, uuid_of);
        std::vector<std::size_t> visible = of_machine(std::move(*numbers), variable);
        std::erase_if(visible, [&machine](std::size_t n) { return n >= machine.gpus.size(); });
        return visible;
    }
    return {};
}

std::string nvidia_uuid(const std::string& pci) {
    constexpr string_view kTitle = "GPU UUID:";
    const auto text = read_file(fmt::format("/proc/driver/nvidia/gpus/{}/information", pci));
    if (!text) return "";
    const std::size_t at = text->find(kTitle);
    if (at == std::string::npos) return "";
    const string_view rest = string_view(*text).substr(at + kTitle.size());
    return std::string(trim(rest.substr(0, rest.find('\n'))));
}

}  // namespace dtrun::binding
