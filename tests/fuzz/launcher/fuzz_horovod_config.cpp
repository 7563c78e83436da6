#include "launcher/cli/horovod_config.h"
#include "tests/fuzz/launcher/promises.h"

#include <algorithm>

using namespace dtrun;
using namespace dtrun::cli;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto values = parse_horovod_config({reinterpret_cast<const char*>(data), size}, "c.yaml");
    if (!values) {
        require_placed(values.error(), "c.yaml");
        return 0;
    }
    for (const auto& [variable, value] : *values) {
        require(!value.empty(), "values are not empty");
        require(variable == kHorovodController ||
                    std::ranges::find(horovod_settings(), variable, &HorovodSetting::variable) !=
                        horovod_settings().end(),
                "variables are Horovod's");
    }
    horovod_environment(*values);
    return 0;
}
