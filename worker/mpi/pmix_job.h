#pragma once

#include "base/result.h"
#include "worker/mpi/pmix_library.h"
#include "worker/mpi/pmix_messages.h"

#include <cstdint>
#include <deque>
#include <list>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::mpi {

/// An array of infos for libpmix, with all that they point to.
class PmixInfos {
public:
    void text(const char* key, std::string value);
    void flag(const char* key, bool value);
    void u16(const char* key, std::uint16_t value);
    void u32(const char* key, std::uint32_t value);
    void rank(const char* key, std::uint32_t value);
    void infos(const char* key, PmixInfos&& values);

    /// Marks the end. Nothing can be added behind it.
    pmix::Info* data();
    std::size_t size() const { return infos_.size(); }

private:
    pmix::Value& add(const char* key, pmix::DataType type);

    std::vector<pmix::Info> infos_;
    std::deque<std::string> texts_;
    std::deque<pmix::DataArray> arrays_;
    std::list<PmixInfos> inner_;
};

pmix::Proc pmix_proc(std::string_view nspace, std::uint32_t rank);

/// Starts libpmix' server: its threads, and its port on 127.0.0.1.
/// \param module  as libpmix keeps it
/// \param directory  for its files
Result<void> pmix_init(const PmixLibrary& library, pmix::ServerModule& module,
                       const std::string& directory, const std::string& host_name);

/// Tells libpmix of a job and who of it will connect here.
Result<void> pmix_register(const PmixLibrary& library, const PmixJob& job,
                           const std::string& directory);

/// The port of libpmix' server, as it tells ranks in their environment.
Result<std::uint16_t> pmix_port(const PmixLibrary& library, const PmixJob& job);

}  // namespace dtrun::mpi
