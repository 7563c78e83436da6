#include "launcher/doctor/examine.h"

#include "base/fd.h"
#include "base/loop/asio.h"
#include "launcher/doctor/doctor_run.h"
#include "launcher/head/agent_config_builder.h"
#include "launcher/head/channel_opener.h"
#include "launcher/transport/agent_file.h"

#include <unistd.h>
#include <cstdio>
#include <optional>
#include <utility>

namespace dtrun::doctor {
namespace {

constexpr std::uint64_t kDescriptors = 256, kDescriptorsOfHost = 8;

}  // namespace

Result<plan::JobSpec> plan_of_examination(plan::Options options,
                                          plan::EnvironmentView environment) {
    const std::string directory = plan::directory_here(environment);
    options.program = {"true"};  // nothing is run
    return plan::make_job_spec(std::move(options), environment, directory);
}

Result<DoctorReport> examine(plan::JobSpec& spec) {
    auto agent = transport::find_agent();
    if (!agent) return std::unexpected(agent.error());
    raise_descriptor_limit(kDescriptors + spec.hosts.size() * kDescriptorsOfHost);
    auto& io = *new asio::io_context(1);  // look-ups that hang may live on until the process ends
    const head::JobCredentials credentials;
    const head::Hosts hosts(spec);
    head::AgentConfigBuilder configs(spec, credentials, hosts, {});
    head::PlannedChannels channels(io.get_executor(), spec, credentials, std::move(*agent),
                                   configs);
    DoctorRun run(io.get_executor(), spec, channels);
    std::optional<DoctorReport> found;
    asio::co_spawn(io, run.run(), [&](std::exception_ptr error, DoctorReport result) {
        if (error) std::rethrow_exception(error);
        found = std::move(result);
        io.stop();
    });
    io.run();
    return std::move(*found);
}

void leave_examination(int status) {
    std::fflush(nullptr);
    ::_exit(status);
}

}  // namespace dtrun::doctor
