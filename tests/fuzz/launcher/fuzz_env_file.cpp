#include "launcher/plan/env_file.h"
#include "launcher/plan/environment.h"
#include "tests/fuzz/launcher/promises.h"

using namespace dtrun;
using namespace dtrun::plan;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto variables = parse_env_file({reinterpret_cast<const char*>(data), size}, "f.env");
    if (!variables) {
        require_placed(variables.error(), "f.env");
        return 0;
    }
    for (const auto& [name, value] : *variables) {
        require(is_variable_name(name), "names are variables' names");
        require(check_settable(name).has_value(), "nobody sets dtrun's own variables");
        require(value.find('\0') == std::string::npos, "values have no NUL");
    }
    return 0;
}
