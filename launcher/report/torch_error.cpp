#include "launcher/report/torch_error.h"

#include "base/fd.h"
#include "base/strings.h"
#include "launcher/output/rank_files.h"
#include "rendezvous/wire/rank_messages.h"

#include <fcntl.h>
#include <boost/json.hpp>
#include <cerrno>
#include <cstring>

namespace dtrun::report {

/// {"message": {"message": TEXT, "extraInfo": {"py_callstack": TEXT, ...}}}, or {"message": TEXT}.
std::optional<TorchError> parse_torch_error(std::string_view text) {
    boost::system::error_code error;
    const boost::json::value json = boost::json::parse(text, error);
    if (error || !json.is_object()) return std::nullopt;
    const boost::json::value* message = json.get_object().if_contains("message");
    TorchError found;
    if (message != nullptr && message->is_object()) {
        const boost::json::object& inner = message->get_object();
        if (const auto* extra = inner.if_contains("extraInfo"); extra && extra->is_object())
            if (const auto* stack = extra->get_object().if_contains("py_callstack");
                stack && stack->is_string())
                for (const std::string_view line : split(stack->get_string(), '\n'))
                    if (!line.empty()) found.traceback.emplace_back(line);
        message = inner.if_contains("message");
    }
    if (message == nullptr || !message->is_string()) return std::nullopt;
    found.message = message->get_string();
    return found;
}

/// As ErrorHandler.dump_error_file() of torch (elastic/multiprocessing/errors/error_handler.py).
std::optional<std::string> torch_error_for_caller(const Exited& first) {
    if (!parse_torch_error(first.traceback)) return std::nullopt;
    boost::json::value json = boost::json::parse(first.traceback);
    const int code = first.signal != 0 ? -first.signal : first.code;
    boost::json::value& message = json.get_object()["message"];
    if (message.is_object() && code != 0) message.get_object()["errorCode"] = code;
    return boost::json::serialize(json);
}

Result<void> leave_torch_error(const std::string& file, const Exited& first) {
    const auto text = torch_error_for_caller(first);
    if (!text) return {};
    const Fd out(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    const int cause = errno;
    if (!out)
        return fail(output::code_of_file_error(cause), "TORCHELASTIC_ERROR_FILE={}: {}", file,
                    strerror(cause));
    if (auto done = write_all(out.get(), *text); !done)
        return fail(done.error(), "TORCHELASTIC_ERROR_FILE={}", file);
    return {};
}

}  // namespace dtrun::report
