#include "launcher/commands/ask_job.h"

#include "base/loop/run_to_exit.h"
#include "launcher/plan/exit_code.h"
#include "launcher/watch/json_line.h"

#include <cstdio>
#include <exception>
#include <utility>

namespace dtrun::commands {

std::vector<control::JobSocket> jobs_here(plan::EnvironmentView environment) {
    return control::running_jobs(
        control::control_folders(plan::find_variable(environment, "XDG_RUNTIME_DIR").value_or(""),
                                 plan::find_variable(environment, "HOME").value_or("")));
}

Result<control::JobSocket> find_job(std::string_view word, plan::EnvironmentView environment) {
    return control::choose_job(jobs_here(environment), word);
}

int status_of(const Error& error) {
    std::fprintf(stderr, "dtrun: %s\n", error.message.c_str());
    return error.code == Errc::closed ? 0 : plan::kExitInternal;
}

asio::awaitable<Result<boost::json::object>> view_of(control::ControlClient& client,
                                                     std::chrono::milliseconds limit) {
    ControlRequest ask;
    ask.command = ControlCommand::view;
    ask.limit_ms = static_cast<std::uint32_t>(limit.count());
    std::string text;
    const std::function<void(const Answer&)> take = [&text](const Answer& answer) {
        text += answer.text;
    };
    const auto code = co_await client.run(ask, take);
    if (!code) co_return std::unexpected(code.error());
    auto view = watch::parse_object(text);
    if (!view || !view->contains("ranks"))
        co_return fail(Errc::invalid_input, "the job's dtrun answers in another language");
    co_return std::move(*view);
}

int run_to_end(asio::io_context& io, asio::awaitable<int> task) {
    return run_to_exit(io, std::move(task), plan::kExitInternal);
}

}  // namespace dtrun::commands
