#pragma once

#include "tests/cluster/support/cluster.h"

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace dtrun::cluster {

/// Whether cases with the tag [long] shall try every combination: `./dev test --all` sets DTRUN_LONG.
bool long_form();

/// Writes an executable file that all hosts see. \return its path
std::string write_program(const Cluster& cluster, const std::string& name, std::string_view text);

/// A new, empty directory in scratch().
std::filesystem::path fresh_directory(const Cluster& cluster, const std::string& name);

/// "" if there is no such file.
std::string file_text(const std::filesystem::path& path);

/// Lines without their '\n', in the order they came or sorted.
std::vector<std::string> lines_of(std::string_view text);
std::vector<std::string> sorted_lines(std::string_view text);

/// Output of each rank, from lines that begin with "[3]<stdout>:" or "[3]<stderr>:".
std::map<int, std::string> by_rank(std::string_view text);

/// dtrun's messages without those about hosts that are slow to get ready.
std::string without_news(std::string_view text);

std::size_t count_of(std::string_view text, std::string_view needle);

/// Checks `condition` every few ms. \return whether it came true within `timeout`
bool wait_until(const std::function<bool()>& condition, milliseconds timeout);

/// Whether `text` appears `times` times on standard output within the timeout.
bool wait_for_count(Running& job, std::string_view text, std::size_t times,
                    milliseconds timeout = kHangs);

/// The begin of a shell's script by which ranks wait for each other, and not for so long that the others should be there:
/// `here` says that this rank is, and `await N` waits until so many have said so.
std::string shell_meeting(const Cluster& cluster);

/// Seconds from the time of the epoch that `out` has after `word` until now.
double seconds_after(std::string_view out, std::string_view word);

bool is_guard(const Process& process);
bool is_agent(const Process& process);
/// Whether the process is an sshd that serves a connection.
bool is_session(const Process& process);

/// The first process of the host that fits. \throws std::runtime_error  there is none
Process find_process(const Cluster& cluster, std::string_view host, const Cluster::Predicate& fits);

/// Resident memory in KiB; 0 when the process is gone.
long memory_kib(pid_t pid_outside);

/// 'R', 'S', 'T', …; 0 when the process is gone.
char state_of(pid_t pid_outside);

/// Mounts a copy of head's /root/.ssh over it, until Cluster::reset(). \return the copy's path
std::filesystem::path private_ssh_directory(Cluster& cluster, const std::string& name);

}  // namespace dtrun::cluster
